variable "project_id" {
  description = "Project of everything."
  type        = string
  nullable    = false
}

variable "zones" {
  description = "Zones of the machines."
  type        = set(string)
  default     = ["us-central1-a", "us-central1-b"]
  nullable    = false
}

variable "service_account_emails" {
  description = "Service accounts of the machines."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.service_account_emails) > 0
    error_message = "service_account_emails: at least one, as in training@my-project.iam.gserviceaccount.com."
  }
}

variable "package_state" {
  description = "installed or removed."
  type        = string
  default     = "installed"
  nullable    = false
}

variable "agent_version" {
  description = "Version of chipwatch."
  type        = string
  nullable    = false
}

variable "index_url" {
  description = "Index of Python packages; what pip is set up for unless set."
  type        = string
  default     = null
}

variable "constraints" {
  description = "Where constraints.txt is: gs://, https:// or a path on the machines."
  type        = string
  nullable    = false
}

variable "wheel_sha256" {
  description = "SHA-256 of chipwatch's wheel, with constraints."
  type        = string
  nullable    = false
}
