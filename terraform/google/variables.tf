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
  type = map(object({
    project_id      = optional(string)
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false
}

variable "principals" {
  description = "Service accounts of Kubernetes that may write metrics by themselves, as the module service-account takes them."
  type = map(object({
    project_number  = string
    project_id      = optional(string)
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false
}

variable "instance_template" {
  description = "A template for machines that install the agent when they start, as the module instance-template takes it; none unless set."
  type = object({
    machine_type = string
    region       = optional(string)
    source_image = optional(string)
    disk = optional(object({
      size_gb = optional(number)
      type    = optional(string)
      kms_key = optional(string)
    }))
    network = optional(object({
      network            = optional(string)
      subnetwork         = optional(string)
      subnetwork_project = optional(string)
      nic_type           = optional(string)
      public_ip          = optional(bool)
    }))
    network_tags = optional(set(string))
    scopes       = optional(set(string))
    accelerators = optional(list(object({
      type  = string
      count = optional(number)
    })))
    on_host_maintenance = optional(string)
    spot                = optional(bool)
    shielded = optional(object({
      secure_boot          = optional(bool)
      vtpm                 = optional(bool)
      integrity_monitoring = optional(bool)
    }))
    metadata = optional(map(string))
  })
  default = null
}

variable "os_policy" {
  description = "A policy that installs the agent on machines that are there, as the module os-policy takes it; none unless set."
  type = object({
    zones = set(string)
    instance_filter = object({
      all              = optional(bool)
      inclusion_labels = optional(list(map(string)))
      exclusion_labels = optional(list(map(string)))
      inventories = optional(list(object({
        os_short_name = string
        os_version    = optional(string)
      })))
    })
    package_state = optional(string)
    mode          = optional(string)
    rollout = optional(object({
      fixed             = optional(number)
      percent           = optional(number)
      min_wait_duration = optional(string)
    }))
  })
  default = null
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
  type = map(object({
    create                = optional(bool)
    enabled               = optional(bool)
    threshold             = optional(number)
    minutes               = optional(number)
    severity              = optional(string)
    notification_channels = optional(list(string))
  }))
  default  = {}
  nullable = false
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

variable "runbooks" {
  description = "Folder or address of the pages about the alarms, for their descriptions."
  type        = string
  default     = "https://chipwatch.example/source/docs/runbooks"
  nullable    = false
}
