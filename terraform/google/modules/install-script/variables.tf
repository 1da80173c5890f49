variable "agent" {
  description = "What is installed, and how it is configured. version, extras (google; tpu on machines with TPUs; prometheus for its web_config_file); level, common_dims, further dims, interval and window in seconds; project to send to (the machine's own), metric_prefix and resource of [sinks.google]; prometheus_port, on which Prometheus scrapes the machine too (the firewall decides who reaches it); config: further TOML, keys before tables; wheelhouse: gs://BUCKET/PREFIX or /PATH, what `make dist` made, with sums_sha256 of its SHA256SUMS, and no index is asked; or constraints with wheel_sha256, and every file of an index (index_url, else what pip is set up for) is held to its hash. One of the two is required."
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

  validation {
    condition     = can(regex("^[0-9]+(\\.[0-9]+)*((a|b|rc)[0-9]+)?(\\.post[0-9]+)?(\\.dev[0-9]+)?$", var.agent.version))
    error_message = "agent: version is one version, such as 0.1.0."
  }

  validation {
    condition     = contains(var.agent.extras, "google") || contains(var.agent.extras, "all")
    error_message = "agent: extras needs google among them."
  }

  validation {
    condition     = length(setsubtract(var.agent.extras, ["cloudwatch", "google", "prometheus", "tpu", "all"])) == 0
    error_message = "agent: extras are google, prometheus, tpu, cloudwatch or all."
  }

  validation {
    condition     = contains(["basic", "detailed", "all"], var.agent.level)
    error_message = "agent: level is basic, detailed or all."
  }

  validation {
    condition     = length(setsubtract(var.agent.common_dims, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "agent: common_dims are words of `agent help run`, as in [\"hostname\", \"instance_type\"]."
  }

  validation {
    condition     = alltrue([for key in keys(var.agent.dims) : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", key))])
    error_message = "agent: keys of dims are letters, digits and _, and begin with no digit."
  }

  validation {
    condition     = !contains([for value in values(var.agent.dims) : trimspace(value) != ""], false)
    error_message = "agent: a value of dims is empty."
  }

  validation {
    condition     = var.agent.interval == null ? true : var.agent.interval > 0
    error_message = "agent: interval is a number of seconds above 0."
  }

  validation {
    condition     = var.agent.window == null ? true : var.agent.window >= 10
    error_message = "agent: window is at least 10 seconds: Google takes no more points of a series."
  }

  validation {
    condition     = var.agent.project == null ? true : can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.agent.project))
    error_message = "agent: project is the id of a project, such as my-project."
  }

  validation {
    condition     = var.agent.metric_prefix == null ? true : can(regex("^(custom|workload|external)\\.googleapis\\.com/([A-Za-z][A-Za-z0-9_]*/)*$", var.agent.metric_prefix))
    error_message = "agent: metric_prefix is custom.googleapis.com/, workload.googleapis.com/ or external.googleapis.com/ and parts that end with /."
  }

  validation {
    condition     = var.agent.resource == null ? true : contains(["auto", "gce_instance", "k8s_container", "k8s_node", "k8s_pod", "generic_node", "generic_task", "aws_ec2_instance"], var.agent.resource)
    error_message = "agent: resource is auto, gce_instance, k8s_container, k8s_node, k8s_pod, generic_node, generic_task or aws_ec2_instance."
  }

  validation {
    condition     = !can(regex("(?m)^END_OF_", var.agent.config))
    error_message = "agent: a line of config begins with END_OF_, which ends things in the script."
  }

  validation {
    condition     = (var.agent.metric_prefix == null && var.agent.resource == null) || !can(regex("(?m)^\\s*\\[\\s*sinks\\.google\\s*\\]", var.agent.config))
    error_message = "agent: config has a table [sinks.google]; put prefix and resource there too, instead of metric_prefix and resource."
  }

  validation {
    condition     = var.agent.prometheus_port == null || (coalesce(var.agent.prometheus_port, 0) >= 1024 && coalesce(var.agent.prometheus_port, 0) <= 65535)
    error_message = "agent: prometheus_port is 1024 to 65535; the agent is not root."
  }

  validation {
    condition     = can(regex("^(|(file://)?/[A-Za-z0-9._/@+-]+|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?)$", var.agent.wheelhouse))
    error_message = "agent: wheelhouse is gs://BUCKET/PREFIX, file:///PATH or /PATH."
  }

  validation {
    condition     = "${var.agent.wheelhouse}${var.agent.constraints}" != ""
    error_message = "agent: give wheelhouse, or constraints with wheel_sha256: the agent is not installed by its name alone."
  }

  validation {
    condition     = can(regex("^(|[0-9a-f]{64})$", var.agent.sums_sha256)) && (var.agent.sums_sha256 == "" || var.agent.wheelhouse != "")
    error_message = "agent: sums_sha256 is 64 hexadecimal digits, and goes with a wheelhouse."
  }

  validation {
    condition     = can(regex("^(|https://[^\\s]+)$", var.agent.index_url))
    error_message = "agent: index_url begins with https://."
  }

  validation {
    condition     = can(regex("^(|(file://)?/[A-Za-z0-9._/@+-]+|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?|https://[^\\s]+)$", var.agent.constraints))
    error_message = "agent: constraints is gs://, https:// or /PATH."
  }

  validation {
    condition     = can(regex("^(|[0-9a-f]{64})$", var.agent.wheel_sha256)) && (var.agent.wheel_sha256 == "") == (var.agent.constraints == "")
    error_message = "agent: wheel_sha256 is 64 hexadecimal digits, and goes with constraints, as these go with it."
  }

  validation {
    condition     = var.agent.wheelhouse == "" || "${var.agent.index_url}${var.agent.constraints}" == ""
    error_message = "agent: with a wheelhouse no index is asked; index_url and constraints are for the other way."
  }
}
