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

variable "image" {
  description = "The agent's image, by digest."
  type        = string
  nullable    = false
}

variable "training_image" {
  description = "The training's image."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[!-~]+$", var.training_image))
    error_message = "training_image: the address of an image."
  }
}

variable "training_repository_arns" {
  description = "The training image's repository, where it is one of ECR."
  type        = list(string)
  default     = []
  nullable    = false
}
