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
  description = "Name of the cluster, and what all names begin with."
  type        = string
  default     = "training"
  nullable    = false
}

variable "image" {
  description = "The agent's image, by digest."
  type        = string
  nullable    = false
}

variable "instance_type" {
  description = "Type of the instances, with NVIDIA GPUs."
  type        = string
  default     = "g6.xlarge"
  nullable    = false

  validation {
    condition     = can(regex("^(p|g|gr)[0-9][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type)) && !can(regex("^(g5g|g4ad|p6e)", var.instance_type))
    error_message = "instance_type: a type with NVIDIA GPUs and x86_64 processors, as in g6.xlarge."
  }
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

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
