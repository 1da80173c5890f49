mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws-cn", dns_suffix = "amazonaws.com.cn" }
  }

  mock_data "aws_region" {
    defaults = { region = "cn-north-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
}

variables {
  image         = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/chipwatch@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  task_role_arn = "arn:aws-cn:iam::123456789012:role/chipwatch-task"
  cluster_arn   = "arn:aws-cn:ecs:cn-north-1:123456789012:cluster/train"
}

run "daemon" {
  command = plan

  assert {
    condition     = aws_ecs_task_definition.daemon[0].pid_mode == "host" && aws_ecs_service.daemon[0].scheduling_strategy == "DAEMON"
    error_message = "The daemon sees the host, once on each instance."
  }

  assert {
    condition     = toset([for volume in aws_ecs_task_definition.daemon[0].volume : volume.name]) == toset(["spool", "proc", "sys", "root"])
    error_message = "The volumes are the mounted ones."
  }

  assert {
    condition     = toset(local.start.PullImage.resources) == toset(["arn:aws-cn:ecr:cn-north-1:123456789012:repository/chipwatch"])
    error_message = "The repository is found in the image's name."
  }
}

run "sidecar_alone" {
  command = plan

  variables {
    create_daemon         = false
    create_execution_role = false
    create_log_group      = false
    sidecar_launch_type   = "EC2"
    accelerator           = "neuron"
    neuron_devices        = 16
    prometheus_port       = 9465
    secrets = {
      CHIPWATCH_LEVEL   = "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/chipwatch/level"
      CHIPWATCH_PROJECT = "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:run-AbCdEf:id::"
    }
  }

  assert {
    condition     = length(aws_ecs_task_definition.daemon) + length(aws_ecs_service.daemon) + length(aws_iam_role.execution) + length(aws_cloudwatch_log_group.this) == 0
    error_message = "Nothing is created for a sidecar."
  }

  assert {
    condition = { for pair in output.sidecar_container_definition.environment : pair.name => pair.value if length(regexall("SINK", pair.name)) > 0 } == {
      CHIPWATCH_SINK                      = "cloudwatch,prometheus"
      CHIPWATCH_SINKS__PROMETHEUS__LISTEN = "0.0.0.0:9465"
    }
    error_message = "Prometheus finds it on the port."
  }

  assert {
    condition     = output.sidecar_container_definition.essential == false && length(output.sidecar_container_definition.linuxParameters.devices) == 16 && output.sidecar_pid_mode == "task"
    error_message = "The sidecar has all devices, and ends nothing."
  }

  assert {
    condition     = local.kept == ["arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:run-AbCdEf"]
    error_message = "The role reads the secret, whatever key of it is wanted."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_ecs_task_definition.daemon) + length(aws_ecs_service.daemon) + length(aws_iam_role.execution) + length(aws_cloudwatch_log_group.this) == 0
    error_message = "create = false creates nothing."
  }
}

run "refuses_a_daemon_without_its_role" {
  command = plan

  variables {
    task_role_arn = null
  }

  expect_failures = [aws_ecs_task_definition.daemon]
}

run "refuses_a_daemon_that_nobody_starts" {
  command = plan

  variables {
    create_execution_role = false
  }

  expect_failures = [aws_ecs_task_definition.daemon]
}

run "refuses_to_keep_more_than_it_may_take" {
  command = plan

  variables {
    memory_reservation = 256
  }

  expect_failures = [aws_ecs_task_definition.daemon]
}

run "refuses_a_daemon_without_a_cluster" {
  command = plan

  variables {
    cluster_arn = null
  }

  expect_failures = [aws_ecs_service.daemon]
}

run "refuses_a_variable_that_secrets_and_environment_have" {
  command = plan

  variables {
    create_daemon = false
    environment   = { CHIPWATCH_PROJECT = "a" }
    secrets = {
      CHIPWATCH_PROJECT = "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/chipwatch/run"
      CHIPWATCH_SINK    = "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/chipwatch/sink"
    }
  }

  expect_failures = [output.sidecar_container_definition]
}

run "refuses_a_role_that_nobody_would_use" {
  command = plan

  variables {
    execution_role_arn = "arn:aws:iam::123456789012:role/mine"
  }

  expect_failures = [output.execution_role_arn]
}

run "refuses_accelerators_on_fargate" {
  command = plan

  variables {
    create_daemon = false
    accelerator   = "nvidia"
  }

  expect_failures = [output.sidecar_container_definition]
}
