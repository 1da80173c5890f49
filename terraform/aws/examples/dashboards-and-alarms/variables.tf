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

variable "dimensions" {
  description = "The agents' common_dims."
  type        = list(string)
  default     = ["instance_id", "neuron_runtime_tag"]
  nullable    = false
}

variable "kms_key_id" {
  description = "Key of the topic; it must allow cloudwatch.amazonaws.com, which AWS's own key alias/aws/sns does not."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_id == null || can(regex("^[!-~]+$", var.kms_key_id))
    error_message = "kms_key_id: the id, ARN or alias/NAME of a key, or null."
  }
}
