variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "training"
  nullable    = false
}

variable "image_id" {
  description = "AMI, or resolve:ssm: and the name of a parameter; unless set, Amazon's newest image with the driver of the type's chips."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "Type of the instances."
  type        = string
  default     = "trn1.2xlarge"
  nullable    = false
}

variable "instances" {
  description = "How many instances."
  type        = number
  default     = 2
  nullable    = false

  validation {
    condition     = var.instances >= 0 && var.instances <= 500 && floor(var.instances) == var.instances
    error_message = "instances: a whole number from 0 to 500, as an alarm watches 500 hosts at most."
  }
}

variable "efa_interfaces" {
  description = "How many EFA interfaces each instance has."
  type        = number
  default     = 0
  nullable    = false
}

variable "placement_group" {
  description = "Placement group of the instances."
  type        = string
  default     = null
}

variable "capacity_reservation" {
  description = "Reserved capacity, as the module ec2 takes it."
  type        = any
  default     = null
}

variable "subnet_ids" {
  description = "Subnets of the instances."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.subnet_ids) > 0 && length(distinct(var.subnet_ids)) == length(var.subnet_ids) && alltrue([for id in var.subnet_ids : can(regex("^subnet-([0-9a-f]{8}|[0-9a-f]{17})$", id))])
    error_message = "subnet_ids: at least one id of a subnet, each once, as in subnet-0123456789abcdef0."
  }
}

variable "security_group_ids" {
  description = "Security groups of the instances."
  type        = list(string)
  nullable    = false

  validation {
    condition     = alltrue([for id in var.security_group_ids : can(regex("^sg-([0-9a-f]{8}|[0-9a-f]{17})$", id))])
    error_message = "security_group_ids: ids of security groups, as in sg-0123456789abcdef0."
  }
}

variable "agent_version" {
  description = "Version of chipwatch."
  type        = string
  nullable    = false
}

variable "wheelhouse" {
  description = "Folder on S3 that `make dist` made; the agent is installed from there."
  type        = string
  nullable    = false
}

variable "sums_sha256" {
  description = "SHA-256 of the wheelhouse's file SHA256SUMS."
  type        = string
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
