variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "What the names of the alarms begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{1,200}$", var.name))
    error_message = "name: 1 to 200 letters, digits and _.-"
  }
}

variable "region" {
  description = "Region of the metrics; the provider's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null || can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "dimensions" {
  description = "The agents' common_dims. Only series with exactly these are found."
  type        = list(string)
  default     = ["instance_id", "instance_type"]
  nullable    = false

  validation {
    condition     = length(setsubtract(var.dimensions, ["neuron_runtime_tag"])) > 0 && alltrue([for word in var.dimensions : can(regex("^[a-z][a-z0-9_]*$", word))])
    error_message = "dimensions: at least one word of the agents' common_dims that tells machines apart, as in [\"instance_id\", \"instance_type\"]."
  }
}

variable "families" {
  description = "What the machines send: host, gpu, neuron, health, fabric."
  type        = set(string)
  default     = ["host", "gpu", "neuron", "health", "fabric"]
  nullable    = false

  validation {
    condition     = length(var.families) > 0 && length(setsubtract(var.families, ["host", "gpu", "neuron", "health", "fabric"])) == 0
    error_message = "families: at least one of host, gpu, neuron, health and fabric."
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

variable "namespace" {
  description = "CloudWatch namespace."
  type        = string
  default     = "Chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_./#-][A-Za-z0-9_./#:-]{0,254}$", var.namespace)) && !startswith(var.namespace, "AWS/")
    error_message = "namespace: 1 to 255 letters, digits and _./#:- ; it begins neither with a colon nor with AWS/."
  }
}

variable "hosts" {
  description = "How many machines should send, besides those of autoscaling_groups: below that agent-silent is in ALARM."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.hosts >= 0 && var.hosts <= 500 && floor(var.hosts) == var.hosts
    error_message = "hosts: a whole number from 0 to 500, as an alarm watches 500 hosts at most; give each part of a larger fleet a namespace and alarms of its own."
  }
}

variable "user_data" {
  description = "Whether machines install the agent by our user-data: the alarm install-failed is there then."
  type        = bool
  default     = false
  nullable    = false
}

variable "autoscaling_groups" {
  description = "Names of Auto Scaling groups whose instances in service should send. They need the group metric GroupInServiceInstances, by the minute; without it agent-silent is in ALARM."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.autoscaling_groups) <= 9
    error_message = "autoscaling_groups: at most 9, which is what an alarm takes."
  }
}

variable "actions_enabled" {
  description = "Whether alarms do anything when they change."
  type        = bool
  default     = true
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of what happens at an alarm: topics, for instance."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.alarm_actions) <= 5 && alltrue([for arn in var.alarm_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:.+$", arn))])
    error_message = "alarm_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "ok_actions" {
  description = "ARNs of what happens when it is over."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.ok_actions) <= 5 && alltrue([for arn in var.ok_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:.+$", arn))])
    error_message = "ok_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "insufficient_data_actions" {
  description = "ARNs of what happens when an alarm cannot tell."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.insufficient_data_actions) <= 5 && alltrue([for arn in var.insufficient_data_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:.+$", arn))])
    error_message = "insufficient_data_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "alarms" {
  description = "What is to be otherwise, by alarm: { gpu-idle = { threshold = 10 }, gpu-throttled = { create = false } }. Thresholds are what the query gives: of counters, the rise in a period."
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition     = can([for one in values(var.alarms) : keys(one)]) && length(setsubtract(flatten(try([for one in values(var.alarms) : keys(one)], [])), ["create", "threshold", "evaluation_periods", "datapoints_to_alarm", "treat_missing_data", "actions_enabled", "alarm_actions", "ok_actions", "insufficient_data_actions"])) == 0
    error_message = "alarms: the keys of each are create, threshold, evaluation_periods, datapoints_to_alarm, treat_missing_data, actions_enabled, alarm_actions, ok_actions, insufficient_data_actions."
  }

  validation {
    condition     = length(setsubtract(keys(var.alarms), ["agent-silent", "container-memory-full", "disk-full", "fleet-silent", "gpu-ecc-uncorrected", "gpu-idle", "gpu-idle-mig", "gpu-lost", "gpu-memory-full", "gpu-memory-full-mig", "gpu-throttled", "gpu-xid", "gpu-xid-workflow", "job-gpu-held", "job-gpu-held-namespace", "job-gpu-held-partition", "job-gpu-imbalance", "job-gpu-imbalance-namespace", "job-gpu-imbalance-partition", "memory-full", "neuron-core-busy", "neuron-core-idle", "neuron-ecc-uncorrected"])) == 0
    error_message = "alarms: there is no such alarm. There are agent-silent, container-memory-full, disk-full, fleet-silent, gpu-ecc-uncorrected, gpu-idle, gpu-idle-mig, gpu-lost, gpu-memory-full, gpu-memory-full-mig, gpu-throttled, gpu-xid, gpu-xid-workflow, job-gpu-held, job-gpu-held-namespace, job-gpu-held-partition, job-gpu-imbalance, job-gpu-imbalance-namespace, job-gpu-imbalance-partition, memory-full, neuron-core-busy, neuron-core-idle and neuron-ecc-uncorrected."
  }

  validation {
    condition     = alltrue([for alarm in values(var.alarms) : contains(["missing", "ignore", "breaching", "notBreaching"], coalesce(try(alarm.treat_missing_data, null), "missing"))])
    error_message = "alarms: treat_missing_data is missing, ignore, breaching or notBreaching."
  }

  validation {
    condition     = alltrue(flatten([for alarm in values(var.alarms) : [for count in [try(alarm.evaluation_periods, null), try(alarm.datapoints_to_alarm, null)] : coalesce(count, 1) >= 1 && floor(coalesce(count, 1)) == coalesce(count, 1)]]))
    error_message = "alarms: evaluation_periods and datapoints_to_alarm are whole numbers from 1."
  }

  validation {
    condition     = alltrue([for arn in flatten([for alarm in values(var.alarms) : [for actions in [try(alarm.alarm_actions, null), try(alarm.ok_actions, null), try(alarm.insufficient_data_actions, null)] : coalesce(actions, [])]]) : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:.+$", arn))])
    error_message = "alarms: alarm_actions, ok_actions and insufficient_data_actions are ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
  nullable    = false
}
