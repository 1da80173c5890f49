variable "create" {
  description = "Whether to create anything; the sidecar's definition exists in either case."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_daemon" {
  description = "Whether to create the daemon's task definition and service."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_execution_role" {
  description = "Whether to create the role that pulls the image, writes the logs and reads the settings."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_log_group" {
  description = "Whether to create the log group; ECS starts no task without one, the training container neither."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "What the names of service, task family and role begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,24}$", var.name))
    error_message = "name: 1 to 24 letters, digits, - and _."
  }
}

variable "use_name_prefix" {
  description = "Whether AWS appends something unique to the role's name."
  type        = bool
  default     = true
  nullable    = false
}

variable "path" {
  description = "Path of the role."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([!-~]{1,510}/)?$", var.path))
    error_message = "path: begins and ends with a slash, as in /monitoring/; at most 512 characters."
  }
}

variable "permissions_boundary" {
  description = "ARN of the policy that bounds the role."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary == null || can(regex("^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[!-~]+$", var.permissions_boundary))
    error_message = "permissions_boundary: the ARN of a policy, as in arn:aws:iam::123456789012:policy/boundary."
  }
}

variable "region" {
  description = "Region of everything, and where metrics and logs go; the provider's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null || can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "image" {
  description = "The agent's image, by digest."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image: its address without https://, in small letters, with its digest at the end, as in 123456789012.dkr.ecr.us-east-1.amazonaws.com/chipwatch@sha256:… (64 hexadecimal digits)."
  }
}

variable "repository_arns" {
  description = "More ECR repositories that the execution role may pull from: the training's, for instance. The agent's own is found in image."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.repository_arns : can(regex("^arn:aws[a-z-]*:ecr:[a-z0-9-]+:[0-9]{12}:repository/[!-~]+$", arn))])
    error_message = "repository_arns: ARNs of repositories, as in arn:aws:ecr:us-east-1:123456789012:repository/training."
  }
}

variable "accelerator" {
  description = "Accelerators of the instances: none (also for AMD and Intel, which are read from /sys), nvidia or neuron."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "nvidia", "neuron"], var.accelerator)
    error_message = "accelerator: none, nvidia or neuron."
  }
}

variable "neuron_devices" {
  description = "How many Neuron devices the instance type has: all are given to the agent."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.neuron_devices >= 1 && var.neuron_devices <= 64 && floor(var.neuron_devices) == var.neuron_devices
    error_message = "neuron_devices: a whole number from 1 to 64; trn1.32xlarge has 16."
  }
}

variable "cpu_architecture" {
  description = "X86_64 or ARM64."
  type        = string
  default     = "X86_64"
  nullable    = false

  validation {
    condition     = contains(["X86_64", "ARM64"], var.cpu_architecture)
    error_message = "cpu_architecture: X86_64 or ARM64."
  }
}

variable "cpu" {
  description = "CPU units of the agent; 1024 are a core."
  type        = number
  default     = 64
  nullable    = false

  validation {
    condition     = var.cpu >= 2 && var.cpu <= 10240 && floor(var.cpu) == var.cpu
    error_message = "cpu: a whole number from 2 to 10240."
  }
}

variable "memory" {
  description = "MiB that the agent may take; 128, with nvidia 192, with neuron 512 unless set."
  type        = number
  default     = null

  validation {
    condition     = var.memory == null || try(var.memory >= 64 && floor(var.memory) == var.memory, false)
    error_message = "memory: a whole number of MiB, at least 64."
  }
}

variable "memory_reservation" {
  description = "MiB that are kept for the agent; 64, with nvidia 96, with neuron 384 unless set."
  type        = number
  default     = null

  validation {
    condition     = var.memory_reservation == null || try(var.memory_reservation >= 6 && floor(var.memory_reservation) == var.memory_reservation, false)
    error_message = "memory_reservation: a whole number of MiB, at least 6."
  }
}

variable "task_role_arn" {
  description = "Role of the daemon's task: the one of the module iam."
  type        = string
  default     = null

  validation {
    condition     = var.task_role_arn == null || can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]+$", var.task_role_arn))
    error_message = "task_role_arn: the ARN of a role, as in arn:aws:iam::123456789012:role/chipwatch-task."
  }
}

variable "execution_role_arn" {
  description = "Role that starts the task, where create_execution_role is false."
  type        = string
  default     = null

  validation {
    condition     = var.execution_role_arn == null || can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]+$", var.execution_role_arn))
    error_message = "execution_role_arn: the ARN of a role, as in arn:aws:iam::123456789012:role/chipwatch-execution."
  }
}

variable "cluster_arn" {
  description = "Cluster of the daemon."
  type        = string
  default     = null

  validation {
    condition     = var.cluster_arn == null || can(regex("^arn:aws[a-z-]*:ecs:[a-z0-9-]+:[0-9]{12}:cluster/[!-~]+$", var.cluster_arn))
    error_message = "cluster_arn: the ARN of a cluster, as in arn:aws:ecs:us-east-1:123456789012:cluster/train."
  }
}

variable "placement_expression" {
  description = "Instances on which the daemon runs, in the cluster query language; all unless set."
  type        = string
  default     = null

  validation {
    condition     = var.placement_expression == null || (can(regex("^[^[:cntrl:]]+$", var.placement_expression)) && try(length(var.placement_expression) <= 2000, false))
    error_message = "placement_expression: one line of 1 to 2000 characters, as in attribute:ecs.instance-type =~ p5.*"
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

variable "daemon_dimensions" {
  description = "The daemon's common_dims; dashboards and alarms need the same."
  type        = list(string)
  default     = ["instance_id", "instance_type", "ecs_cluster"]
  nullable    = false

  validation {
    condition     = length(var.daemon_dimensions) > 0 && length(distinct(var.daemon_dimensions)) == length(var.daemon_dimensions) && length(setsubtract(var.daemon_dimensions, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "daemon_dimensions: at least one word of the agent's common_dims, each once, as in [\"instance_id\", \"instance_type\"]. The words are those of `chipwatch run --help`."
  }
}

variable "sidecar_dimensions" {
  description = "The sidecar's common_dims; dashboards and alarms need the same."
  type        = list(string)
  default     = ["ecs_cluster", "ecs_task_family", "ecs_task"]
  nullable    = false

  validation {
    condition     = length(var.sidecar_dimensions) > 0 && length(distinct(var.sidecar_dimensions)) == length(var.sidecar_dimensions) && length(setsubtract(var.sidecar_dimensions, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "sidecar_dimensions: at least one word of the agent's common_dims, each once, as in [\"ecs_task_family\", \"ecs_task\"]. The words are those of `chipwatch run --help`."
  }
}

variable "sidecar_launch_type" {
  description = "Where the sidecar's task runs: FARGATE or EC2."
  type        = string
  default     = "FARGATE"
  nullable    = false

  validation {
    condition     = contains(["FARGATE", "EC2"], var.sidecar_launch_type)
    error_message = "sidecar_launch_type: FARGATE or EC2."
  }
}

variable "level" {
  description = "How much is sent: basic, detailed or all; every series costs."
  type        = string
  default     = "basic"
  nullable    = false

  validation {
    condition     = contains(["basic", "detailed", "all"], var.level)
    error_message = "level: basic, detailed or all."
  }
}

variable "prometheus_port" {
  description = "Port on which Prometheus scrapes the agent, besides what CloudWatch gets: the instance's of the daemon, the task's of the sidecar. Their security group decides who reaches it. Nothing listens unless set."
  type        = number
  default     = null

  validation {
    condition     = var.prometheus_port == null || try(var.prometheus_port >= 1024 && var.prometheus_port <= 65535 && floor(var.prometheus_port) == var.prometheus_port, false)
    error_message = "prometheus_port: a whole number from 1024 to 65535; the agent is not root."
  }
}

variable "environment" {
  description = "More settings of the agent, by their variables: { CHIPWATCH_INTERVAL = \"10\" }."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^[A-Z_][A-Z0-9_]*$", name))])
    error_message = "environment: names of variables in capitals, as in CHIPWATCH_INTERVAL."
  }

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^CHIPWATCH_((CONFIG|SINK|COLLECTOR|NO_COLLECTOR|PROCESSOR|NO_PROCESSOR|INTERVAL|WINDOW|FLUSH|LEVEL|HIGH_RESOLUTION_METRICS|DIMS|NAMES|STDIN|PID|PROC|SYS|ROOT|SPOOL|SPOOL_BYTES|RECORDER|DROP_OTHER_DESTINATIONS|HEALTH|FORMAT|NAMESPACE|REGION|PROJECT|ENDPOINT_URL|QUIET|LOG_LEVEL|LOG_FORMAT)(__|$)|(COLLECTORS|PROCESSORS|SINKS)__)", name)) || !startswith(name, "CHIPWATCH_")])
    error_message = "environment: the agent has no such setting: what begins with CHIPWATCH_ is an option of `chipwatch run --help`, or CHIPWATCH_SINKS__NAME__KEY and the like. For CHIPWATCH_COMMON_DIMS there are daemon_dimensions and sidecar_dimensions."
  }

  validation {
    condition     = alltrue([for name, value in var.environment : value != null && can(regex(lookup({ CHIPWATCH_LEVEL = "^(|basic|detailed|all)$", CHIPWATCH_LOG_LEVEL = "^(|debug|info|warning|error)$", CHIPWATCH_NAMES = "^(|native|wandb|wandb-docs|mlflow|cwagent|neuron-prometheus|dcgm|dcgm4[.]7|node|otel)(,(wandb|wandb-docs|mlflow|cwagent|neuron-prometheus|dcgm|dcgm4[.]7|node|otel))*$", CHIPWATCH_INTERVAL = "^(|[0-9.]+ *(ms|s|m|h)?)$", CHIPWATCH_WINDOW = "^(|[0-9.]+ *(ms|s|m|h)?)$", CHIPWATCH_FLUSH = "^(|[0-9.]+ *(ms|s|m|h)?)$" }, name, ""), value))])
    error_message = "environment: a value is null, or not what the agent takes: CHIPWATCH_LEVEL is basic, detailed or all; CHIPWATCH_LOG_LEVEL debug, info, warning or error; CHIPWATCH_NAMES native, wandb, wandb-docs, mlflow, cwagent, neuron-prometheus, dcgm, dcgm4.7, node or otel, or several with commas; CHIPWATCH_INTERVAL, CHIPWATCH_WINDOW and CHIPWATCH_FLUSH a time such as 5, 500ms or 1m."
  }
}

variable "secrets" {
  description = "Settings from SSM or Secrets Manager, by their variables: { CHIPWATCH_LEVEL = \"arn:aws:ssm:…:parameter/chipwatch/level\" }. A sidecar whose parameter is missing keeps its whole task from starting."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for arn in values(var.secrets) : can(regex("^arn:aws[a-z-]*:(ssm:[a-z0-9-]+:[0-9]{12}:parameter/[!-~]+|secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[!-~]+)$", arn))])
    error_message = "secrets: ARNs of parameters of SSM or of secrets of Secrets Manager."
  }

  validation {
    condition     = alltrue([for name in keys(var.secrets) : can(regex("^[A-Z_][A-Z0-9_]*$", name))])
    error_message = "secrets: names of variables in capitals, as in CHIPWATCH_LEVEL."
  }

  validation {
    condition     = alltrue([for name in keys(var.secrets) : can(regex("^CHIPWATCH_((CONFIG|SINK|COLLECTOR|NO_COLLECTOR|PROCESSOR|NO_PROCESSOR|INTERVAL|WINDOW|FLUSH|LEVEL|HIGH_RESOLUTION_METRICS|DIMS|NAMES|STDIN|PID|PROC|SYS|ROOT|SPOOL|SPOOL_BYTES|RECORDER|DROP_OTHER_DESTINATIONS|HEALTH|FORMAT|NAMESPACE|REGION|PROJECT|ENDPOINT_URL|QUIET|LOG_LEVEL|LOG_FORMAT)(__|$)|(COLLECTORS|PROCESSORS|SINKS)__)", name)) || !startswith(name, "CHIPWATCH_")])
    error_message = "secrets: the agent has no such setting: what begins with CHIPWATCH_ is an option of `chipwatch run --help`, or CHIPWATCH_SINKS__NAME__KEY and the like. For CHIPWATCH_COMMON_DIMS there are daemon_dimensions and sidecar_dimensions."
  }
}

variable "secrets_kms_key_arns" {
  description = "Keys that the secrets are encrypted with, where they are your own."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.secrets_kms_key_arns : can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[!-~]+$", arn))])
    error_message = "secrets_kms_key_arns: ARNs of keys, as in arn:aws:kms:us-east-1:123456789012:key/…."
  }
}

variable "log_group_name" {
  description = "Log group of the agent."
  type        = string
  default     = "/ecs/chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_./#-]{1,512}$", var.log_group_name)) && !startswith(var.log_group_name, "aws/")
    error_message = "log_group_name: 1 to 512 letters, digits and _./#- ; it does not begin with aws/."
  }
}

variable "log_retention_days" {
  description = "Days that logs are kept; 0 is for ever."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days: 0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653."
  }
}

variable "log_kms_key_arn" {
  description = "Key of the log group, where it is your own; it must allow CloudWatch Logs."
  type        = string
  default     = null

  validation {
    condition     = var.log_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[!-~]+$", var.log_kms_key_arn))
    error_message = "log_kms_key_arn: the ARN of a key, as in arn:aws:kms:us-east-1:123456789012:key/…."
  }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50 && alltrue([for key, value in var.tags : can(regex("^[^[:cntrl:]]{1,128}$", key)) && !startswith(lower(key), "aws:") && try(length(value) <= 256, false)])
    error_message = "tags: at most 50; a key has 1 to 128 characters and does not begin with aws:, a value has at most 256."
  }
}
