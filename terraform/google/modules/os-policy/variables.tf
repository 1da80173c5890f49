variable "create" {
  description = "Whether to create anything."
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

variable "zones" {
  description = "Zones of the fleet: a policy is of one zone, so there is one for each."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.zones) > 0 && alltrue([for zone in var.zones : can(regex("^[a-z]+(-[a-z]+)+[0-9]+-([a-z]|ai[0-9]+[a-z])$", zone))])
    error_message = "zones: at least one zone, as in [\"us-central1-a\", \"us-central1-b\"]; not regions."
  }
}

variable "name" {
  description = "Name of the assignment in each zone."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$", var.name))
    error_message = "name: 1 to 63 small letters, digits and hyphens; it begins with a letter and ends with no hyphen."
  }
}

variable "package_state" {
  description = "installed, or removed: then nothing is left of it."
  type        = string
  default     = "installed"
  nullable    = false

  validation {
    condition     = contains(["installed", "removed"], var.package_state)
    error_message = "package_state: installed or removed."
  }
}

variable "mode" {
  description = "ENFORCEMENT, or VALIDATION: then machines are looked at and left alone."
  type        = string
  default     = "ENFORCEMENT"
  nullable    = false

  validation {
    condition     = contains(["ENFORCEMENT", "VALIDATION"], var.mode)
    error_message = "mode: ENFORCEMENT or VALIDATION."
  }
}

variable "instance_filter" {
  description = "Which machines: all, or those that have all labels of one of inclusion_labels, none of exclusion_labels' sets, and one of the inventories (os_short_name; os_version, which may end with *)."
  type = object({
    all              = optional(bool, false)
    inclusion_labels = optional(list(map(string)), [])
    exclusion_labels = optional(list(map(string)), [])
    inventories = optional(list(object({
      os_short_name = string
      os_version    = optional(string)
    })), [])
  })
  nullable = false

  validation {
    condition     = var.instance_filter.all != (length(concat(var.instance_filter.inclusion_labels, var.instance_filter.exclusion_labels)) + length(var.instance_filter.inventories) > 0)
    error_message = "instance_filter: say which machines by inclusion_labels, exclusion_labels or inventories, or all = true and nothing else."
  }

  validation {
    condition     = alltrue([for labels in concat(var.instance_filter.inclusion_labels, var.instance_filter.exclusion_labels) : try(length(labels) > 0, false) && alltrue([for key, value in labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])])
    error_message = "instance_filter: keys and values of labels are small letters, digits, _ and hyphens, 63 at most; a key begins with a letter."
  }

  validation {
    condition     = alltrue([for one in var.instance_filter.inventories : can(regex("^[a-z][a-z0-9_-]*$", one.os_short_name)) && (one.os_version == null || can(regex("^[A-Za-z0-9._~+-]+\\*?$", one.os_version)))])
    error_message = "instance_filter: inventories have an os_short_name such as debian, ubuntu, rocky or rhel, and an os_version such as 12 or 9*."
  }
}

variable "rollout" {
  description = "How many machines at a time, fixed or percent (10), and min_wait_duration (300s): how long a machine counts as being changed."
  type = object({
    fixed             = optional(number)
    percent           = optional(number)
    min_wait_duration = optional(string, "300s")
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.rollout.fixed == null || var.rollout.percent == null
    error_message = "rollout: fixed or percent, not both."
  }

  validation {
    condition     = alltrue([for count in [var.rollout.fixed, var.rollout.percent] : count == null || try(count >= 1 && floor(count) == count, false)]) && try(var.rollout.percent <= 100, true)
    error_message = "rollout: fixed and percent are whole numbers from 1; percent is at most 100."
  }

  validation {
    condition     = var.rollout.min_wait_duration == null || can(regex("^[0-9]+s$", var.rollout.min_wait_duration))
    error_message = "rollout: min_wait_duration is seconds, as in 300s."
  }
}

variable "skip_await_rollout" {
  description = "Whether Terraform goes on without waiting for the rollout, which can take hours."
  type        = bool
  default     = true
  nullable    = false
}

variable "agent" {
  description = "What is installed, and how it is configured: see modules/install-script."
  type = object({
    version         = string
    extras          = optional(list(string), ["google"])
    level           = optional(string, "basic")
    common_dims     = optional(list(string), [])
    dims            = optional(map(string), {})
    interval        = optional(number)
    window          = optional(number)
    project         = optional(string)
    metric_prefix   = optional(string)
    resource        = optional(string)
    prometheus_port = optional(number)
    config          = optional(string, "")
    wheelhouse      = optional(string, "")
    sums_sha256     = optional(string, "")
    index_url       = optional(string, "")
    constraints     = optional(string, "")
    wheel_sha256    = optional(string, "")
  })
  nullable = false
}
