variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_account" {
  description = "Whether to create a service account; without it, and without email, there are only principals."
  type        = bool
  default     = true
  nullable    = false
}

variable "project_id" {
  description = "Project in which everything is created."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id: the id of a project, such as my-project; neither its number nor its name."
  }
}

variable "metrics_project_id" {
  description = "Project to which the agent may send, if it is another one; also set agent.project."
  type        = string
  default     = null

  validation {
    condition     = var.metrics_project_id == null ? true : can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.metrics_project_id))
    error_message = "metrics_project_id: the id of a project, such as my-metrics."
  }
}

variable "account_id" {
  description = "What the address of the service account begins with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.account_id))
    error_message = "account_id: 6 to 30 small letters, digits and hyphens; it begins with a letter and ends with no hyphen."
  }
}

variable "display_name" {
  description = "Name of the service account for people."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = length(var.display_name) <= 100
    error_message = "display_name: at most 100 characters."
  }
}

variable "description" {
  description = "Description of the service account."
  type        = string
  default     = "Machines that run chipwatch: writes metrics"
  nullable    = false

  validation {
    condition     = length(var.description) <= 256
    error_message = "description: at most 256 characters."
  }
}

variable "email" {
  description = "An existing service account, which gets the roles; then none is created."
  type        = string
  default     = null

  validation {
    condition     = var.email == null ? true : can(regex("^[a-z0-9-]+@[a-z0-9.-]+\\.gserviceaccount\\.com$", var.email))
    error_message = "email: the address of a service account, as in training@my-project.iam.gserviceaccount.com."
  }
}

variable "workload_identity" {
  description = "Service accounts of Kubernetes that may act as this one, by names of your own: namespace and service_account (chipwatch both), and project_id, the cluster's."
  type = map(object({
    project_id      = optional(string)
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for pod in values(var.workload_identity) : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", pod.namespace)) && can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", pod.service_account))])
    error_message = "workload_identity: namespace and service_account are names of Kubernetes: small letters, digits and hyphens, in that of an account also dots."
  }

  validation {
    condition     = alltrue([for pod in values(var.workload_identity) : try(pod.project_id, null) == null || can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", pod.project_id))])
    error_message = "workload_identity: project_id is the id of the cluster's project."
  }
}

variable "principals" {
  description = "Service accounts of Kubernetes that may write metrics by themselves, by names of your own: project_number and project_id, the cluster's; namespace and service_account (chipwatch both)."
  type = map(object({
    project_number  = string
    project_id      = optional(string)
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for pod in values(var.principals) : can(regex("^[0-9]{6,20}$", pod.project_number))])
    error_message = "principals: project_number is required, and is the number of the cluster's project, as `gcloud projects describe` says it."
  }

  validation {
    condition     = alltrue([for pod in values(var.principals) : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", pod.namespace)) && can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", pod.service_account))])
    error_message = "principals: namespace and service_account are names of Kubernetes: small letters, digits and hyphens, in that of an account also dots."
  }

  validation {
    condition     = alltrue([for pod in values(var.principals) : try(pod.project_id, null) == null || can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", pod.project_id))])
    error_message = "principals: project_id is the id of the cluster's project."
  }
}

variable "wheelhouses" {
  description = "Folders of wheels, gs://BUCKET/PREFIX, that machines may install from. The bucket needs uniform bucket-level access."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for folder in var.wheelhouses : can(regex("^gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?$", folder))])
    error_message = "wheelhouses: folders of Cloud Storage, as in gs://bucket/chipwatch/0.1.0."
  }
}
