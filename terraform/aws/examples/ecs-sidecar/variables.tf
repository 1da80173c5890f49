variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false
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
}

variable "training_repository_arns" {
  description = "The training image's repository, where it is one of ECR."
  type        = list(string)
  default     = []
  nullable    = false
}
