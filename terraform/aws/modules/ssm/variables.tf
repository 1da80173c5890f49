variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "Name of document and association."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{3,128}$", var.name)) && !can(regex("^(?i)(aws|amazon|amzn)", var.name))
    error_message = "name: 3 to 128 letters, digits and _.- ; it does not begin with aws, amazon or amzn."
  }
}

variable "region" {
  description = "Region of document and association; the provider's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null || can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "script" {
  description = "The output script of modules/install-script; another version or configuration is another script, and is rolled out."
  type        = string
  nullable    = false

  validation {
    condition     = startswith(var.script, "#!")
    error_message = "script: the output script of modules/install-script."
  }

  validation {
    condition     = !strcontains(var.script, "{{") && !can(regex("(?m)^END_OF_INSTALLER$", var.script))
    error_message = "script: neither {{, which Systems Manager replaces, nor a line END_OF_INSTALLER may be in it; look into the agent's config."
  }
}

variable "action" {
  description = "What is done on the machines: install (also updates), rollback (to what was there before the last update) or uninstall."
  type        = string
  default     = "install"
  nullable    = false

  validation {
    condition     = contains(["install", "rollback", "uninstall"], var.action)
    error_message = "action: install, rollback or uninstall."
  }
}

variable "target_tags" {
  description = "Tags that choose the machines, with values; a machine needs one of the values of each tag."
  type        = map(list(string))
  default     = { chipwatch = ["yes"] }
  nullable    = false

  validation {
    condition     = length(var.target_tags) > 0 && length(var.target_tags) <= 5 && alltrue([for values in var.target_tags : length(values) > 0])
    error_message = "target_tags: 1 to 5 tags, each with at least one value, as in { app = [\"training\"] }."
  }
}

variable "max_concurrency" {
  description = "How many machines at a time: a number, or a percentage of the targets."
  type        = string
  default     = "10%"
  nullable    = false

  validation {
    condition     = can(regex("^([1-9][0-9]{0,6}|([1-9][0-9]?|100)%)$", var.max_concurrency))
    error_message = "max_concurrency: a number from 1, or 1% to 100%."
  }
}

variable "max_errors" {
  description = "How many machines may fail before no further one is touched: a number, or a percentage of the targets; 0 stops at the first. Those that are under way are still finished."
  type        = string
  default     = "1%"
  nullable    = false

  validation {
    condition     = can(regex("^(0|[1-9][0-9]{0,6}|([0-9]|[1-9][0-9]|100)%)$", var.max_errors))
    error_message = "max_errors: a number, or 0% to 100%."
  }
}

variable "schedule_expression" {
  description = "When it is repeated, so that new machines and such as were off get it too; the same version again touches nothing. Once unless set, and then for each new machine."
  type        = string
  default     = "rate(1 day)"

  validation {
    condition     = var.schedule_expression == null || can(regex("^(rate\\([1-9][0-9]* (minutes?|hours?|days?)\\)|cron\\([^()]+\\))$", var.schedule_expression))
    error_message = "schedule_expression: as in rate(1 day) or cron(0 2 ? * SUN *)."
  }
}

variable "timeout_seconds" {
  description = "After how many seconds an installation that still runs counts as failed."
  type        = number
  default     = 1800
  nullable    = false

  validation {
    condition     = var.timeout_seconds >= 300 && var.timeout_seconds <= 172800 && floor(var.timeout_seconds) == var.timeout_seconds
    error_message = "timeout_seconds: a whole number from 300 to 172800."
  }
}

variable "compliance_severity" {
  description = "How a machine that failed is shown in Compliance."
  type        = string
  default     = "MEDIUM"
  nullable    = false

  validation {
    condition     = contains(["UNSPECIFIED", "LOW", "MEDIUM", "HIGH", "CRITICAL"], var.compliance_severity)
    error_message = "compliance_severity: UNSPECIFIED, LOW, MEDIUM, HIGH or CRITICAL."
  }
}

variable "output_bucket" {
  description = "Bucket on S3 for the installer's whole output; without it Systems Manager keeps the first 2,500 characters. The instances' role must write it."
  type        = string
  default     = null

  validation {
    condition     = var.output_bucket == null || can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.output_bucket))
    error_message = "output_bucket: the name of a bucket."
  }
}

variable "tags" {
  description = "Tags of document and association."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50 && alltrue([for key, value in var.tags : can(regex("^[^[:cntrl:]]{1,128}$", key)) && !startswith(lower(key), "aws:") && try(length(value) <= 256, false)])
    error_message = "tags: at most 50; a key has 1 to 128 characters and does not begin with aws:, a value has at most 256."
  }
}
