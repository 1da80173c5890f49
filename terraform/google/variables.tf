variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_service_account" {
  description = "Whether to create a service account, or to give service_account_email the role to write metrics. Without it, machines need one that has it: service_account_email."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_dashboard" {
  description = "Whether to create the dashboard."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_alarms" {
  description = "Whether to create the alert policies."
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

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,28}[a-z0-9]$", var.name))
    error_message = "name: 2 to 30 small letters, digits and hyphens; it begins with a letter and ends with no hyphen."
  }
}

variable "use_name_prefix" {
  description = "Whether something unique is appended to the name of the instance template."
  type        = bool
  default     = true
  nullable    = false
}

variable "account_id" {
  description = "What the address of the service account begins with, 6 to 30 characters; the name unless set."
  type        = string
  default     = null
}

variable "service_account_email" {
  description = "An existing service account; then none is created."
  type        = string
  default     = null
}

variable "workload_identity" {
  description = "Service accounts of Kubernetes that may act as the service account, as the module service-account takes them."
  type        = any
  default     = {}
  nullable    = false
}

variable "principals" {
  description = "Service accounts of Kubernetes that may write metrics by themselves, as the module service-account takes them."
  type        = any
  default     = {}
  nullable    = false
}

variable "instance_template" {
  description = "A template for machines that install the agent when they start, as the module instance-template takes it; none unless set."
  type        = any
  default     = null

  validation {
    condition     = var.instance_template == null || try(var.instance_template.machine_type != null && length(setsubtract(keys(var.instance_template), ["machine_type", "region", "source_image", "disk", "network", "network_tags", "scopes", "accelerators", "on_host_maintenance", "spot", "shielded", "metadata"])) == 0, false)
    error_message = "instance_template: the keys are machine_type, region, source_image, disk, network, network_tags, scopes, accelerators, on_host_maintenance, spot, shielded, metadata; machine_type is required."
  }
}

variable "os_policy" {
  description = "A policy that installs the agent on machines that are there, as the module os-policy takes it; none unless set."
  type        = any
  default     = null

  validation {
    condition     = var.os_policy == null || try(var.os_policy.zones != null && var.os_policy.instance_filter != null && length(setsubtract(keys(var.os_policy), ["zones", "instance_filter", "package_state", "mode", "rollout"])) == 0, false)
    error_message = "os_policy: the keys are zones, instance_filter, package_state, mode, rollout; zones and instance_filter are required."
  }
}

variable "families" {
  description = "What dashboard and alert policies are about: host, gpu, neuron, tpu, health, fabric. Google takes no policy about what no machine ever sent."
  type        = set(string)
  default     = ["host"]
  nullable    = false
}

variable "resource_types" {
  description = "Monitored resources that send, for the alert policies."
  type        = list(string)
  default     = ["gce_instance"]
  nullable    = false
}

variable "notification_channels" {
  description = "Whom alert policies tell: projects/P/notificationChannels/N."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "alarms" {
  description = "Changes to alarms, by name, as the module alert-policies takes it: { gpu-idle = { threshold = 10 } }."
  type        = any
  default     = {}
  nullable    = false
}

variable "labels" {
  description = "Labels of everything that can have some."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.labels) <= 63 && alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels: at most 63; keys and values are small letters, digits, _ and hyphens, 63 at most; a key begins with a letter."
  }
}

variable "agent" {
  description = "What is installed, and how it is configured: see modules/install-script."
  type        = any
  nullable    = false
}

variable "runbooks" {
  description = "Folder or address of the pages about the alarms, for their descriptions."
  type        = string
  default     = "docs/runbooks"
  nullable    = false
}
