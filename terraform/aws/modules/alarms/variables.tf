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
    condition     = length(setsubtract(var.dimensions, ["neuron_runtime_tag"])) > 0 && length(distinct(var.dimensions)) == length(var.dimensions) && length(setsubtract(var.dimensions, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "dimensions: at least one word of the agents' common_dims that tells machines apart, each once, as in [\"instance_id\", \"instance_type\"]. The words are those of `chipwatch run --help`."
  }
}

variable "own_dimensions" {
  description = "Names of the dimensions that the agents have besides, by `--dim KEY=VALUE` or `[dims]` in their configuration."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for key in var.own_dimensions : can(regex("^[A-Za-z][A-Za-z0-9_.-]{0,254}$", key))])
    error_message = "own_dimensions: names as in --dim KEY=VALUE, 1 to 255 letters, digits and _.-, a letter first; such as [\"team\"]."
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
  description = "How many machines should send, besides the instances of autoscaling_groups: below that agent-silent is in ALARM."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.hosts >= 0 && var.hosts <= 500 && floor(var.hosts) == var.hosts
    error_message = "hosts: a whole number from 0 to 500, as an alarm watches 500 hosts at most; give each part of a larger fleet its own namespace and alarms."
  }
}

variable "user_data" {
  description = "Whether machines install the agent by our user-data; this adds the alarm install-failed."
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
    condition     = length(var.autoscaling_groups) <= 9 && length(distinct(var.autoscaling_groups)) == length(var.autoscaling_groups) && alltrue([for name in var.autoscaling_groups : can(regex("^[^[:cntrl:]]{1,255}$", name))])
    error_message = "autoscaling_groups: at most 9 names of 1 to 255 characters, each once: an alarm takes no more."
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
    condition     = length(var.alarm_actions) <= 5 && alltrue([for arn in var.alarm_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:[!-~]+$", arn))])
    error_message = "alarm_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "ok_actions" {
  description = "ARNs of what happens when it is over."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.ok_actions) <= 5 && alltrue([for arn in var.ok_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:[!-~]+$", arn))])
    error_message = "ok_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "insufficient_data_actions" {
  description = "ARNs of what happens when an alarm cannot tell."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.insufficient_data_actions) <= 5 && alltrue([for arn in var.insufficient_data_actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:[!-~]+$", arn))])
    error_message = "insufficient_data_actions: at most 5 ARNs, as in arn:aws:sns:us-east-1:123456789012:pager."
  }
}

variable "alarms" {
  description = "Changes to alarms, by name: { gpu-idle = { threshold = 10 }, gpu-throttled = { create = false } }. Thresholds are what the query gives: of counters, the rise in a period."
  type = map(object({
    create                    = optional(bool, true)
    threshold                 = optional(number)
    evaluation_periods        = optional(number)
    datapoints_to_alarm       = optional(number)
    treat_missing_data        = optional(string)
    actions_enabled           = optional(bool)
    alarm_actions             = optional(list(string))
    ok_actions                = optional(list(string))
    insufficient_data_actions = optional(list(string))
  }))
  default  = {}
  nullable = false

  validation {
    condition     = length(setsubtract(try(keys(var.alarms), []), ["agent-silent", "container-memory-full", "disk-full", "fleet-silent", "gpu-ecc-uncorrected", "gpu-idle", "gpu-idle-mig", "gpu-lost", "gpu-memory-full", "gpu-memory-full-mig", "gpu-throttled", "gpu-xid", "gpu-xid-workflow", "install-failed", "job-gpu-held", "job-gpu-held-namespace", "job-gpu-held-partition", "job-gpu-imbalance", "job-gpu-imbalance-namespace", "job-gpu-imbalance-partition", "memory-full", "neuron-core-busy", "neuron-core-idle", "neuron-ecc-uncorrected"])) == 0
    error_message = "alarms: there is no such alarm. There are agent-silent, container-memory-full, disk-full, fleet-silent, gpu-ecc-uncorrected, gpu-idle, gpu-idle-mig, gpu-lost, gpu-memory-full, gpu-memory-full-mig, gpu-throttled, gpu-xid, gpu-xid-workflow, install-failed, job-gpu-held, job-gpu-held-namespace, job-gpu-held-partition, job-gpu-imbalance, job-gpu-imbalance-namespace, job-gpu-imbalance-partition, memory-full, neuron-core-busy, neuron-core-idle and neuron-ecc-uncorrected."
  }

  validation {
    condition     = alltrue([for alarm in try(values(var.alarms), []) : try(alarm.treat_missing_data, null) == null || can(regex("^(missing|ignore|breaching|notBreaching)$", alarm.treat_missing_data))])
    error_message = "alarms: treat_missing_data is missing, ignore, breaching or notBreaching."
  }

  validation {
    condition     = alltrue(flatten([for alarm in try(values(var.alarms), []) : [for count in [try(alarm.evaluation_periods, null), try(alarm.datapoints_to_alarm, null)] : count == null || try(count >= 1 && floor(count) == tonumber(count), false)]]))
    error_message = "alarms: evaluation_periods and datapoints_to_alarm are whole numbers from 1."
  }

  validation {
    condition     = alltrue(flatten([for alarm in try(values(var.alarms), []) : [for actions in [try(alarm.alarm_actions, null), try(alarm.ok_actions, null), try(alarm.insufficient_data_actions, null)] : actions == null || try(length(actions) <= 5 && alltrue([for arn in actions : can(regex("^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:[!-~]+$", arn))]), false)]]))
    error_message = "alarms: alarm_actions, ok_actions and insufficient_data_actions are lists of at most 5 ARNs, as in [\"arn:aws:sns:us-east-1:123456789012:pager\"]."
  }

  validation {
    condition     = alltrue([for name, alarm in var.alarms : endswith(name, "-silent") || try(alarm.threshold >= 0 && (alarm.threshold <= 100 || !can(regex("-(busy|full|idle)(-mig)?$", name))), true)])
    error_message = "alarms: threshold is not negative, and at most 100 where it is a percentage (busy, full and idle)."
  }
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50 && alltrue([for key, value in var.tags : can(regex("^[^[:cntrl:]]{1,128}$", key)) && !startswith(lower(key), "aws:") && try(length(value) <= 256, false)])
    error_message = "tags: at most 50; a key has 1 to 128 characters and does not begin with aws:, a value has at most 256."
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
