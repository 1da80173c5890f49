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
  default     = "chipwatch"
  nullable    = false
}

variable "image" {
  description = "The agent's image, by digest."
  type        = string
  nullable    = false
}

variable "cluster_arn" {
  description = "The cluster; its instances have the nvidia runtime as Docker's default."
  type        = string
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
