variable "project_id" {
  description = "Project of everything."
  type        = string
  nullable    = false
}

variable "email" {
  description = "Address of who is told."
  type        = string
  nullable    = false
}
