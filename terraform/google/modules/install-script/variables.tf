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
    error_message = "agent: version is one version, as in 0.1.0; no range."
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
    condition     = length(distinct(var.agent.common_dims)) == length(var.agent.common_dims) && length(setsubtract(var.agent.common_dims, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "agent: common_dims are words of `chipwatch run --help`, each once, as in [\"hostname\", \"instance_type\"]."
  }

  validation {
    condition     = alltrue([for key in keys(var.agent.dims) : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", key))])
    error_message = "agent: keys of dims are letters, digits and _, and begin with no digit."
  }

  validation {
    condition     = alltrue([for value in values(var.agent.dims) : can(regex("^[^[:cntrl:]]*[^[:cntrl:] ][^[:cntrl:]]*$", value))])
    error_message = "agent: values of dims are one line of text, and not empty."
  }

  validation {
    condition     = var.agent.interval == null || try(var.agent.interval >= 0.1 && var.agent.interval <= 86400, false)
    error_message = "agent: interval is a number of seconds from 0.1 to 86400."
  }

  validation {
    condition     = var.agent.window == null || try(var.agent.window >= 10 && var.agent.window <= 86400, false)
    error_message = "agent: window is a number of seconds from 10 to 86400: Google takes no more points of a series."
  }

  validation {
    condition     = try(var.agent.window >= var.agent.interval, true)
    error_message = "agent: window is below interval; set window to the interval or more."
  }

  validation {
    condition     = var.agent.project == null || can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.agent.project))
    error_message = "agent: project is the id of a project, such as my-project."
  }

  validation {
    condition     = var.agent.metric_prefix == null || can(regex("^(custom|workload|external)\\.googleapis\\.com/([A-Za-z][A-Za-z0-9_]*/)*$", var.agent.metric_prefix)) && try(length(var.agent.metric_prefix) <= 100, true)
    error_message = "agent: metric_prefix is custom.googleapis.com/, workload.googleapis.com/ or external.googleapis.com/ and parts that end with /, 100 characters at most."
  }

  validation {
    condition     = var.agent.resource == null || can(regex("^(auto|gce_instance|k8s_container|k8s_node|k8s_pod|generic_node|generic_task|aws_ec2_instance)$", var.agent.resource))
    error_message = "agent: resource is auto, gce_instance, k8s_container, k8s_node, k8s_pod, generic_node, generic_task or aws_ec2_instance."
  }

  validation {
    condition     = !can(regex("(?m)^END_OF_", var.agent.config))
    error_message = "agent: a line of config begins with END_OF_, which ends things in the script."
  }

  validation {
    condition     = !can(regex("(?m)^\\s*\\[\\s*(${join("|", [for key, table in { dims = "dims", metric_prefix = "sinks\\.google", resource = "sinks\\.google", prometheus_port = "sinks\\.prometheus" } : try(length(var.agent[key]) == 0, var.agent[key] == null) ? "-" : table])})\\s*\\]", var.agent.config))
    error_message = "agent: config has a table [dims], [sinks.google] or [sinks.prometheus] that dims, metric_prefix and resource, or prometheus_port write too; set these in the table instead."
  }

  validation {
    condition     = !can(regex("(?m)^\\s*[\"']?(sink|level|${join("|", [for key, name in { common_dims = "common_dims", dims = "dims", project = "project", interval = "interval", window = "window", metric_prefix = "sinks\\.google\\.prefix", resource = "sinks\\.google\\.resource", prometheus_port = "sinks\\.prometheus\\.listen" } : try(length(var.agent[key]) == 0, var.agent[key] == null) ? "-" : name])})[\"']?\\s*=", replace(var.agent.config, "/(?s)(^|\\n)\\s*\\[.*/", "")))
    error_message = "agent: config sets sink, level, or something that another key of agent sets too; TOML takes each key once, so set it in agent alone."
  }

  validation {
    condition     = var.agent.prometheus_port == null || try(var.agent.prometheus_port >= 1024 && var.agent.prometheus_port <= 65535 && floor(var.agent.prometheus_port) == var.agent.prometheus_port, false)
    error_message = "agent: prometheus_port is a whole number from 1024 to 65535; the agent is not root."
  }

  validation {
    condition     = var.agent.wheelhouse == "" || can(regex("^((file://)?/[A-Za-z0-9._/@+-]+|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?)$", var.agent.wheelhouse))
    error_message = "agent: wheelhouse is gs://BUCKET/PREFIX, file:///PATH or /PATH."
  }

  validation {
    condition     = "${var.agent.wheelhouse}${var.agent.constraints}" != ""
    error_message = "agent: give wheelhouse, or constraints with wheel_sha256: the agent is not installed by its name alone."
  }

  validation {
    condition     = can(regex("^([0-9a-f]{64})?$", var.agent.sums_sha256)) && (var.agent.sums_sha256 == "" || var.agent.wheelhouse != "")
    error_message = "agent: sums_sha256 is 64 hexadecimal digits, and goes with a wheelhouse."
  }

  validation {
    condition     = var.agent.index_url == "" || can(regex("^https://[^@[:space:]]+$", var.agent.index_url))
    error_message = "agent: index_url is an address that begins with https://, without a password: everybody who may read the machines' metadata can read it."
  }

  validation {
    condition     = var.agent.constraints == "" || can(regex("^((file://)?/[A-Za-z0-9._/@+-]+|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?|https://[^@[:space:]]+)$", var.agent.constraints))
    error_message = "agent: constraints is a file, by gs://BUCKET/NAME, https:// (without a password) or /PATH."
  }

  validation {
    condition     = can(regex("^([0-9a-f]{64})?$", var.agent.wheel_sha256)) && (var.agent.constraints == "") == (var.agent.wheel_sha256 == "")
    error_message = "agent: constraints needs wheel_sha256, 64 hexadecimal digits, and the other way round: chipwatch itself is not among the constraints."
  }

  validation {
    condition     = var.agent.wheelhouse == "" || "${var.agent.index_url}${var.agent.constraints}" == ""
    error_message = "agent: with a wheelhouse no index is used, so index_url and constraints must not be set."
  }
}
