# The agent on ECS: a container definition to put beside a training container, and a daemon that runs once on each instance.

data "aws_partition" "current" {}
data "aws_region" "current" {}
data "aws_caller_identity" "current" {}

locals {
  partition = data.aws_partition.current.partition
  region    = coalesce(var.region, data.aws_region.current.region)
  account   = data.aws_caller_identity.current.account_id

  create_daemon         = var.create && var.create_daemon
  create_execution_role = var.create && var.create_execution_role
  execution_role_arn    = local.create_execution_role ? one(aws_iam_role.execution[*].arn) : var.execution_role_arn
  log_group_arn         = "arn:${local.partition}:logs:${local.region}:${local.account}:log-group:${var.log_group_name}"

  # MiB; neuron-monitor takes up to 320 of them.
  memory      = coalesce(var.memory, { none = 128, nvidia = 192, neuron = 512 }[var.accelerator])
  reservation = coalesce(var.memory_reservation, { none = 64, nvidia = 96, neuron = 384 }[var.accelerator])

  spool = "/var/lib/chipwatch"

  # `basic` is what the agent does by itself.
  level = var.level == "basic" || contains(keys(var.secrets), "CHIPWATCH_LEVEL") ? {} : { CHIPWATCH_LEVEL = var.level }

  environment = merge(
    {
      AWS_REGION          = local.region
      CHIPWATCH_SINK      = var.prometheus_port == null ? "cloudwatch" : "cloudwatch,prometheus"
      CHIPWATCH_NAMESPACE = var.namespace
      CHIPWATCH_SPOOL     = local.spool

      # It would read the limits of the agent's own container.
      CHIPWATCH_NO_COLLECTOR = "container"
    },
    local.level,
    var.prometheus_port == null ? {} : { CHIPWATCH_SINKS__PROMETHEUS__LISTEN = "0.0.0.0:${var.prometheus_port}" },
    # The driver's library shows the GPUs; taking none of them leaves all to the training.
    var.accelerator == "nvidia" ? { NVIDIA_VISIBLE_DEVICES = "all", NVIDIA_DRIVER_CAPABILITIES = "utility" } : {},
  )

  # ECS refuses a variable that both have.
  given_twice = sort(setintersection(keys(var.secrets), setunion(keys(local.sidecar_environment), keys(local.daemon_environment))))

  secrets = [for name in sort(keys(var.secrets)) : { name = name, valueFrom = var.secrets[name] }]

  devices = var.accelerator == "neuron" ? {
    devices = [for n in range(var.neuron_devices) : {
      hostPath      = "/dev/neuron${n}"
      containerPath = "/dev/neuron${n}"
      permissions   = ["read", "write"]
    }]
  } : {}

  container = merge(
    {
      name                   = "chipwatch"
      image                  = var.image
      cpu                    = var.cpu
      memory                 = local.memory
      memoryReservation      = local.reservation
      user                   = "65532:65532"
      readonlyRootFilesystem = true
      privileged             = false

      healthCheck = {
        command     = ["CMD", "/app/bin/agent", "status", "--health"]
        interval    = 30
        timeout     = 5
        retries     = 3
        startPeriod = 15
      }

      stopTimeout = 30

      logConfiguration = {
        logDriver = "awslogs"
        options = {
          awslogs-group         = var.log_group_name
          awslogs-region        = local.region
          awslogs-stream-prefix = "agent"
          mode                  = "non-blocking"
          max-buffer-size       = "4m"
        }
      }
    },
    length(local.secrets) == 0 ? {} : { secrets = local.secrets },
  )

  spool_mount = { sourceVolume = "spool", containerPath = local.spool, readOnly = false }
  no_new      = { dockerSecurityOptions = ["no-new-privileges"] }
  drop_all    = { capabilities = { drop = ["ALL"] } }

  # With another process's pids the agent is not the first process, and an init is of no use to it.
  sidecar_pid_mode = var.accelerator == "neuron" ? "task" : null
  sidecar_init     = local.sidecar_pid_mode == null ? { initProcessEnabled = true } : {}
  sidecar_environment = merge(
    local.environment, { CHIPWATCH_COMMON_DIMS = join(",", var.sidecar_dimensions) }, var.environment,
  )

  sidecar = merge(
    local.container,
    {
      # The training does not end with the agent, and ECS starts the agent again.
      essential       = false
      restartPolicy   = { enabled = true, restartAttemptPeriod = 60 }
      environment     = [for name in sort(keys(local.sidecar_environment)) : { name = name, value = local.sidecar_environment[name] }]
      mountPoints     = [local.spool_mount]
      linuxParameters = merge(local.sidecar_init, local.drop_all, local.devices)
    },
    var.sidecar_launch_type == "EC2" ? local.no_new : {},
  )

  host_mounts = { proc = "/proc", sys = "/sys", root = "/" }

  daemon_environment = merge(
    local.environment,
    { CHIPWATCH_COMMON_DIMS = join(",", var.daemon_dimensions) },
    { for name, path in local.host_mounts : "CHIPWATCH_${upper(name)}" => "/host/${name}" },
    var.environment,
  )

  daemon = merge(
    local.container,
    local.no_new,
    {
      essential       = true
      environment     = [for name in sort(keys(local.daemon_environment)) : { name = name, value = local.daemon_environment[name] }]
      linuxParameters = merge(local.drop_all, local.devices)
      mountPoints = concat(
        [local.spool_mount],
        [for name in ["proc", "sys", "root"] : { sourceVolume = name, containerPath = "/host/${name}", readOnly = true }],
      )
    },
  )
}

# -- logs --------------------------------------------------------------------------------------------------------

resource "aws_cloudwatch_log_group" "this" {
  count = var.create && var.create_log_group ? 1 : 0

  region            = var.region
  name              = var.log_group_name
  retention_in_days = var.log_retention_days
  kms_key_id        = var.log_kms_key_arn
  tags              = var.tags
}

# -- the role that starts the task -------------------------------------------------------------------------------

locals {
  # ACCOUNT.dkr.ecr.REGION.amazonaws.com, ACCOUNT.dkr.ecr-fips..., and with IPv6 ACCOUNT.dkr-ecr.REGION.on.aws.
  registry     = try(regex("^([0-9]{12})\\.dkr[.-]ecr(?:-fips)?\\.([a-z0-9-]+)\\.[a-z.]+/([^@:]+)", var.image), null)
  repositories = concat(local.registry == null ? [] : ["arn:${local.partition}:ecr:${local.registry[1]}:${local.registry[0]}:repository/${local.registry[2]}"], var.repository_arns)

  parameters = [for arn in values(var.secrets) : arn if split(":", arn)[2] == "ssm"]
  # A key of the JSON, a stage and a version may stand behind the secret's own ARN.
  kept = [for arn in values(var.secrets) : join(":", slice(split(":", arn), 0, 7)) if split(":", arn)[2] == "secretsmanager"]

  start = {
    PullImage      = { actions = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], resources = local.repositories }
    LogIn          = { actions = ["ecr:GetAuthorizationToken"], resources = length(local.repositories) == 0 ? [] : ["*"] } # the action knows no resources
    WriteLogs      = { actions = ["logs:CreateLogStream", "logs:PutLogEvents"], resources = ["${local.log_group_arn}:*"] }
    ReadParameters = { actions = ["ssm:GetParameters"], resources = distinct(local.parameters) }
    ReadSecrets    = { actions = ["secretsmanager:GetSecretValue"], resources = distinct(local.kept) }
    Decrypt        = { actions = ["kms:Decrypt"], resources = var.secrets_kms_key_arns }
  }
}

data "aws_iam_policy_document" "execution_trust" {
  statement {
    sid     = "EcsTasks"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }

    condition {
      test     = "ArnLike"
      variable = "aws:SourceArn"
      values   = ["arn:${local.partition}:ecs:${local.region}:${local.account}:*"]
    }
  }
}

data "aws_iam_policy_document" "execution" {
  dynamic "statement" {
    for_each = { for sid, rule in local.start : sid => rule if length(rule.resources) > 0 }

    content {
      sid       = statement.key
      actions   = statement.value.actions
      resources = statement.value.resources
    }
  }
}

resource "aws_iam_role" "execution" {
  count = local.create_execution_role ? 1 : 0

  name                 = var.use_name_prefix ? null : "${var.name}-execution"
  name_prefix          = var.use_name_prefix ? "${var.name}-execution-" : null
  path                 = var.path
  description          = "Starts the tasks of chipwatch: image, logs and settings"
  assume_role_policy   = data.aws_iam_policy_document.execution_trust.json
  permissions_boundary = var.permissions_boundary
  tags                 = var.tags
}

resource "aws_iam_role_policy" "execution" {
  count = local.create_execution_role ? 1 : 0

  name   = "start"
  role   = aws_iam_role.execution[0].name
  policy = data.aws_iam_policy_document.execution.json
}

# -- the daemon --------------------------------------------------------------------------------------------------

resource "aws_ecs_task_definition" "daemon" {
  count = local.create_daemon ? 1 : 0

  region                   = var.region
  family                   = "${var.name}-daemon"
  requires_compatibilities = ["EC2"]
  network_mode             = "host" # the counters of the interfaces are the host's, and the metadata service is no hop further
  pid_mode                 = "host"
  task_role_arn            = var.task_role_arn
  execution_role_arn       = local.execution_role_arn
  container_definitions    = jsonencode([local.daemon])
  tags                     = var.tags

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  # A volume of the instance's: a new version of the agent sends what the old one owed.
  volume {
    name = "spool"

    docker_volume_configuration {
      scope         = "shared"
      autoprovision = true
      driver        = "local"
    }
  }

  dynamic "volume" {
    for_each = local.host_mounts

    content {
      name      = volume.key
      host_path = volume.value
    }
  }

  lifecycle {
    precondition {
      condition     = var.task_role_arn != null
      error_message = "task_role_arn: the daemon needs a role that may send metrics, as the module iam makes one with create_ecs_task."
    }

    precondition {
      condition     = local.create_execution_role || var.execution_role_arn != null
      error_message = "execution_role_arn: without create_execution_role, name the role that starts the task."
    }

    precondition {
      condition     = local.reservation <= local.memory
      error_message = "memory_reservation: not more than memory."
    }
  }

  depends_on = [aws_cloudwatch_log_group.this] # ECS starts no task without it
}

resource "aws_ecs_service" "daemon" {
  count = local.create_daemon ? 1 : 0

  region                             = var.region
  name                               = "${var.name}-daemon"
  cluster                            = var.cluster_arn
  task_definition                    = aws_ecs_task_definition.daemon[0].arn
  launch_type                        = "EC2"
  scheduling_strategy                = "DAEMON"
  deployment_minimum_healthy_percent = 0 # two of them would count everything twice
  deployment_maximum_percent         = 100
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  tags                               = var.tags

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  dynamic "placement_constraints" {
    for_each = var.placement_expression == null ? [] : [var.placement_expression]

    content {
      type       = "memberOf"
      expression = placement_constraints.value
    }
  }

  lifecycle {
    precondition {
      condition     = var.cluster_arn != null
      error_message = "cluster_arn: the daemon needs the ARN of the cluster that it runs in."
    }
  }
}
