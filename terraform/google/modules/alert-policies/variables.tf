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

variable "name" {
  description = "What the names of the policies begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$", var.name))
    error_message = "name: 1 to 100 letters, digits, blanks and ._- ; it begins with a letter or digit."
  }
}

variable "families" {
  description = "What the machines send: host, gpu, neuron, tpu, health, fabric. Google takes no policy about what none of them ever sent."
  type        = set(string)
  default     = ["host"]
  nullable    = false

  validation {
    condition     = length(var.families) > 0 && length(setsubtract(var.families, ["host", "gpu", "neuron", "tpu", "health", "fabric"])) == 0
    error_message = "families: at least one of host, gpu, neuron, tpu, health and fabric."
  }
}

variable "level" {
  description = "The agents' level: basic, detailed or all."
  type        = string
  default     = "basic"
  nullable    = false

  validation {
    condition     = contains(["basic", "detailed", "all"], var.level)
    error_message = "level: basic, detailed or all."
  }
}

variable "metric_prefix" {
  description = "What metric types begin with: prefix of the agents' [sinks.google]."
  type        = string
  default     = "custom.googleapis.com/chipwatch/"
  nullable    = false

  validation {
    condition     = can(regex("^(custom|workload|external)\\.googleapis\\.com/([A-Za-z][A-Za-z0-9_]*/)*$", var.metric_prefix)) && length(var.metric_prefix) <= 100
    error_message = "metric_prefix: custom.googleapis.com/, workload.googleapis.com/ or external.googleapis.com/ and parts that end with /, 100 characters at most."
  }
}

variable "resource_types" {
  description = "Monitored resources that send: a policy has a condition for each. The agent chooses gce_instance on machines of Compute Engine, k8s_node or k8s_pod on GKE."
  type        = list(string)
  default     = ["gce_instance"]
  nullable    = false

  validation {
    condition     = length(var.resource_types) >= 1 && length(var.resource_types) <= 6 && length(distinct(var.resource_types)) == length(var.resource_types)
    error_message = "resource_types: one to six, each once; a policy has six conditions at most."
  }

  validation {
    condition     = length(setsubtract(var.resource_types, ["gce_instance", "k8s_container", "k8s_node", "k8s_pod", "generic_node", "generic_task", "aws_ec2_instance"])) == 0
    error_message = "resource_types: gce_instance, k8s_container, k8s_node, k8s_pod, generic_node, generic_task or aws_ec2_instance."
  }
}

variable "create_metrics" {
  description = "Whether to make the metrics that the policies name, since Google takes no policy about a metric that it does not know. `terraform destroy` then deletes them with their history: set it to false for a project whose agents have sent for some minutes."
  type        = bool
  default     = true
  nullable    = false
}

variable "enabled" {
  description = "Whether the policies are on."
  type        = bool
  default     = true
  nullable    = false
}

variable "notification_channels" {
  description = "Whom to tell: projects/P/notificationChannels/N."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.notification_channels) <= 16 && alltrue([for channel in var.notification_channels : can(regex("^projects/[^/[:space:]]+/notificationChannels/[^/[:space:]]+$", channel))])
    error_message = "notification_channels: at most 16 full names, as in projects/my-project/notificationChannels/123."
  }
}

variable "auto_close" {
  description = "Seconds without data after which an incident is closed, as in 3600s; the generator's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.auto_close == null ? true : try(tonumber(regex("^([0-9]+)s$", var.auto_close)[0]), 0) >= 1800 && try(tonumber(regex("^([0-9]+)s$", var.auto_close)[0]), 0) <= 604800
    error_message = "auto_close: seconds, from 1800s to 604800s."
  }
}

variable "alarms" {
  description = "Changes to alarms, by name: { gpu-idle = { threshold = 10, minutes = 30 }, gpu-throttled = { create = false } }; also enabled, severity and notification_channels."
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

  validation {
    condition     = length(setsubtract(keys(var.alarms), ["agent-silent", "container-memory-full", "cpu-throttled", "disk-full", "disk-nvme-lost", "disk-read-only", "fleet-silent", "gpu-ecc-uncorrected", "gpu-idle", "gpu-lost", "gpu-memory-full", "gpu-throttled", "gpu-xid", "gpu-xid-workflow", "job-gpu-held", "job-gpu-imbalance", "kernel-events", "lustre-disconnected", "memory-error-uncorrected", "memory-full", "neuron-core-busy", "neuron-core-idle", "neuron-ecc-uncorrected", "nfs-unanswered", "node-failures", "pcie-error", "pcie-link-degraded", "rdma-link-flaps", "rdma-port-down", "tpu-idle", "tpu-memory-full"])) == 0
    error_message = "alarms: there is no such alarm. There are agent-silent, container-memory-full, cpu-throttled, disk-full, disk-nvme-lost, disk-read-only, fleet-silent, gpu-ecc-uncorrected, gpu-idle, gpu-lost, gpu-memory-full, gpu-throttled, gpu-xid, gpu-xid-workflow, job-gpu-held, job-gpu-imbalance, kernel-events, lustre-disconnected, memory-error-uncorrected, memory-full, neuron-core-busy, neuron-core-idle, neuron-ecc-uncorrected, nfs-unanswered, node-failures, pcie-error, pcie-link-degraded, rdma-link-flaps, rdma-port-down, tpu-idle and tpu-memory-full."
  }

  validation {
    condition     = alltrue([for alarm in values(var.alarms) : try(alarm.severity, null) == null || can(regex("^(CRITICAL|ERROR|WARNING)$", alarm.severity))])
    error_message = "alarms: severity is CRITICAL, ERROR or WARNING."
  }

  validation {
    condition     = alltrue([for alarm in values(var.alarms) : try(alarm.minutes, null) == null || try(alarm.minutes >= 0 && alarm.minutes <= 1410 && floor(alarm.minutes) == alarm.minutes, false)])
    error_message = "alarms: minutes is a whole number from 0 to 1410."
  }

  validation {
    condition     = alltrue([for name, alarm in var.alarms : !endswith(name, "-silent") || (try(alarm.threshold, null) == null && try(alarm.minutes >= 2, true))])
    error_message = "alarms: agent-silent and fleet-silent have no threshold, and wait at least 2 minutes."
  }

  validation {
    condition     = alltrue([for channel in flatten([for alarm in values(var.alarms) : try([for channel in alarm.notification_channels : channel], [])]) : can(regex("^projects/[^/[:space:]]+/notificationChannels/[^/[:space:]]+$", channel))])
    error_message = "alarms: notification_channels are full names, as in projects/my-project/notificationChannels/123."
  }

  validation {
    condition     = alltrue([for name, alarm in var.alarms : try(alarm.threshold >= 0 && (alarm.threshold <= 100 || !can(regex("-(busy|full|idle)$", name))), true)])
    error_message = "alarms: threshold is not negative, and at most 100 where it is a percentage (busy, full and idle)."
  }
}

variable "labels" {
  description = "Labels of the policies."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.labels) <= 63 && alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels: at most 63; keys and values are small letters, digits, _ and hyphens, 63 at most; a key begins with a letter."
  }
}

variable "runbooks" {
  description = "Folder or address of the pages about the alarms; each alarm's description has the link of its page."
  type        = string
  default     = "https://chipwatch.example/source/docs/runbooks"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9:/._~?#&=+@-]{1,400}$", var.runbooks))
    error_message = "runbooks: a folder or an address, such as https://wiki.example/chipwatch; 1 to 400 letters, digits and :/._~?#&=+@-"
  }
}
