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
  description = "Name of the dashboard."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$", var.name))
    error_message = "name: 1 to 100 letters, digits, blanks and ._- ; it begins with a letter or digit."
  }
}

variable "families" {
  description = "What the machines send: host, gpu, neuron, tpu, health, fabric."
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
