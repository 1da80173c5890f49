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
  description = "AMI with the driver of the type's chips; a fixed one, as a parameter that says `latest` would change under the fleet. terraform.tfvars.example has the command that finds it."
  type        = string
  nullable    = false

  validation {
    condition     = startswith(var.image_id, "ami-")
    error_message = "image_id: an AMI, as in ami-0123456789abcdef0."
  }
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
  type = object({
    id                 = optional(string)
    resource_group_arn = optional(string)
    is_block           = optional(bool, false)
  })
  default = null
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

variable "refresh_instances" {
  description = "Whether an apply replaces running instances by such of the new launch template, a few at a time. Updates of the agent need it not."
  type        = bool
  default     = false
  nullable    = false
}

variable "max_concurrency" {
  description = "How many instances an update of the agent changes at a time, as the module ssm takes it."
  type        = string
  default     = "10%"
  nullable    = false
}

variable "max_errors" {
  description = "How many instances may fail before an update stops, as the module ssm takes it."
  type        = string
  default     = "1%"
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
