variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false
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
}

variable "instances" {
  description = "How many instances."
  type        = number
  default     = 2
  nullable    = false
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

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
