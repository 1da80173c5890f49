variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false
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
}
