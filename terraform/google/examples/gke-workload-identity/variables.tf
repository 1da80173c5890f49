variable "project_id" {
  description = "Project of everything."
  type        = string
  nullable    = false
}

variable "project_number" {
  description = "Number of the project, where direct is set."
  type        = string
  default     = null
}

variable "direct" {
  description = "Whether the service account of Kubernetes has the role itself."
  type        = bool
  default     = false
  nullable    = false
}

variable "cluster_name" {
  description = "Name of the cluster."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", var.cluster_name))
    error_message = "cluster_name: 1 to 40 small letters, digits and hyphens; it begins with a letter and ends with no hyphen."
  }
}

variable "namespace" {
  description = "Namespace of the chart."
  type        = string
  default     = "chipwatch"
  nullable    = false
}
