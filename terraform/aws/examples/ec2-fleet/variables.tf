variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false
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
}

variable "security_group_ids" {
  description = "Security groups of the instances."
  type        = list(string)
  nullable    = false
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
