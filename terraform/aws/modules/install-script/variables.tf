variable "agent" {
  description = "What is installed, and how it is configured. version; extras (cloudwatch, google, prometheus, tpu, all); sinks, namespace and region (the instance's own unless set) of CloudWatch; dimensions, the agent's common_dims; level (basic, detailed, all); config: further TOML, keys before tables, no secrets; wheelhouse: s3://BUCKET/PREFIX, file:///PATH or /PATH, what `make dist` made, with sums_sha256 of its SHA256SUMS, and no index is asked; or constraints (s3://, https:// or /PATH: our requirements/cloudwatch.txt) with wheel_sha256, and every file of an index (index_url, else what pip is set up for) is held to its hash. One of the two is required."
  type = object({
    version      = string
    extras       = optional(list(string), ["cloudwatch"])
    sinks        = optional(list(string), ["cloudwatch"])
    namespace    = optional(string, "Chipwatch")
    region       = optional(string, "")
    dimensions   = optional(list(string), ["instance_id", "instance_type"])
    level        = optional(string, "basic")
    config       = optional(string, "")
    wheelhouse   = optional(string, "")
    sums_sha256  = optional(string, "")
    index_url    = optional(string, "")
    constraints  = optional(string, "")
    wheel_sha256 = optional(string, "")
  })
  nullable = false

  validation {
    condition     = can(regex("^[0-9]+(\\.[0-9]+)*((a|b|rc)[0-9]+)?(\\.post[0-9]+)?(\\.dev[0-9]+)?$", var.agent.version))
    error_message = "agent: version is one version, as in 0.1.0; no range."
  }

  validation {
    condition     = length(setsubtract(var.agent.extras, ["cloudwatch", "google", "prometheus", "tpu", "all"])) == 0
    error_message = "agent: extras are cloudwatch, google, prometheus, tpu and all."
  }

  validation {
    condition     = length(var.agent.sinks) > 0 && alltrue([for sink in var.agent.sinks : can(regex("^[a-z][a-z0-9_-]*$", sink))])
    error_message = "agent: sinks are at least one name of a sink, as in [\"cloudwatch\"]."
  }

  validation {
    condition     = alltrue([for sink, extra in { cloudwatch = "cloudwatch", cloudwatch-otlp = "cloudwatch", google = "google" } : !contains(var.agent.sinks, sink) || contains(var.agent.extras, extra) || contains(var.agent.extras, "all")])
    error_message = "agent: the sinks cloudwatch and google need the extra of their name, and cloudwatch-otlp needs cloudwatch."
  }

  validation {
    condition     = alltrue([for sink in var.agent.sinks : contains(["cloudwatch", "cloudwatch-otlp", "google", "mlflow", "otlp", "prometheus", "stdout"], sink) || can(regex("(?m)^\\s*\\[\\s*sinks\\.${sink}\\s*[.\\]]", var.agent.config))])
    error_message = "agent: each of sinks is cloudwatch, cloudwatch-otlp, google, mlflow, otlp, prometheus or stdout, or the name of a table [sinks.NAME] in config."
  }

  validation {
    condition     = can(regex("^[A-Za-z0-9_./#-][A-Za-z0-9_./#:-]{0,254}$", var.agent.namespace)) && !startswith(var.agent.namespace, "AWS/")
    error_message = "agent: namespace has 1 to 255 letters, digits and _./#:- ; it begins neither with a colon nor with AWS/."
  }

  validation {
    condition     = can(regex("^([a-z]{2,}(-[a-z]+)+-[0-9]+)?$", var.agent.region))
    error_message = "agent: region is the name of a region, as in us-east-1."
  }

  validation {
    condition     = length(var.agent.dimensions) > 0 && length(distinct(var.agent.dimensions)) == length(var.agent.dimensions) && length(setsubtract(var.agent.dimensions, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "agent: dimensions are at least one word of the agent's common_dims, each once, as in [\"instance_id\"]. The words are those of `chipwatch run --help`."
  }

  validation {
    condition     = contains(["basic", "detailed", "all"], var.agent.level)
    error_message = "agent: level is basic, detailed or all."
  }

  validation {
    condition     = !can(regex("(?m)^END_OF_", var.agent.config)) && !can(regex("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]", var.agent.config))
    error_message = "agent: no line of config may begin with END_OF_, which ends it in the script, and there are no control characters in TOML."
  }

  validation {
    condition     = !can(regex("(?m)^\\s*[\"']?(sink|common_dims|namespace|level${var.agent.region == "" ? "" : "|region"})[\"']?\\s*=", replace(var.agent.config, "/(?s)(^|\\n)\\s*\\[.*/", "")))
    error_message = "agent: config sets a key that the script sets too (sink, common_dims, namespace, level, or region), and TOML takes each key once; use sinks, dimensions, namespace, level and region."
  }

  validation {
    condition     = can(regex("^((file://)?/[A-Za-z0-9._/@+-]+|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._/@+=-]+)?$", var.agent.wheelhouse))
    error_message = "agent: wheelhouse is s3://BUCKET/PREFIX, file:///PATH or /PATH."
  }

  validation {
    condition     = var.agent.wheelhouse == "" || "${var.agent.index_url}${var.agent.constraints}${var.agent.wheel_sha256}" == ""
    error_message = "agent: with a wheelhouse no index is used, so index_url, constraints and wheel_sha256 must not be set."
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
    condition     = can(regex("^(https://[^@[:space:]]+)?$", var.agent.index_url))
    error_message = "agent: index_url is an address that begins with https://, without a password: users who may describe the launch template can read it."
  }

  validation {
    condition     = can(regex("^((file://)?/[A-Za-z0-9._/@+-]+|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._/@+=-]+|https://[^@[:space:]]+)?$", var.agent.constraints))
    error_message = "agent: constraints is a file, by s3://BUCKET/KEY, https:// or /PATH."
  }

  validation {
    condition     = can(regex("^([0-9a-f]{64})?$", var.agent.wheel_sha256)) && (var.agent.constraints == "") == (var.agent.wheel_sha256 == "")
    error_message = "agent: constraints needs wheel_sha256, 64 hexadecimal digits, and the other way round: chipwatch itself is not among the constraints."
  }
}
