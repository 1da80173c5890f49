variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "Name of the dashboard."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,255}$", var.name))
    error_message = "name: 1 to 255 letters, digits, - and _."
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

variable "start" {
  description = "How far back it shows, as an ISO 8601 duration."
  type        = string
  default     = "-PT3H"
  nullable    = false

  validation {
    condition     = can(regex("^-P([1-9][0-9]{0,2}[MWD]|T[1-9][0-9]{0,3}[MH])$", var.start))
    error_message = "start: a duration back from now, as in -PT3H or -P7D."
  }
}
