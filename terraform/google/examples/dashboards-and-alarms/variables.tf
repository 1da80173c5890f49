variable "project_id" {
  description = "Project of everything."
  type        = string
  nullable    = false
}

variable "email" {
  description = "Address for the alerts."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^@[:space:]]+@[^@[:space:]]+\\.[^@[:space:]]+$", var.email))
    error_message = "email: an address, as in pager@example.com."
  }
}
