mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
}

run "nothing_but_dashboard_and_alarms" {
  command = plan

  assert {
    condition     = output.dashboard_name == "chipwatch" && length(output.alarm_arns) > 0 && output.instance_profile_arn == null && output.ecs_task_role_arn == null
    error_message = "What is not asked for is not created."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
    ec2    = { image_id = "ami-0123456789abcdef0", agent_version = "0.1.0" }
    ecs    = { image = "chipwatch@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
    irsa   = { oidc_provider_arn = "arn:aws:iam::123456789012:oidc-provider/x" }
  }

  assert {
    condition     = output.dashboard_name == null && length(output.alarm_arns) == 0 && output.launch_template_id == null && output.irsa_role_arn == null
    error_message = "create = false creates nothing."
  }
}

run "sidecar_alone" {
  command = plan

  variables {
    ecs = {
      image               = "chipwatch@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
      create_daemon       = false
      accelerator         = "neuron"
      sidecar_launch_type = "EC2"
    }
  }

  assert {
    condition     = { for one in output.sidecar_container_definition.environment : one.name => one.value }["CHIPWATCH_COMMON_DIMS"] == join(",", local.dimensions) && local.dimensions == tolist(["ecs_cluster", "ecs_task_family", "ecs_task"])
    error_message = "Dashboard and alarms are of what the sidecar sends."
  }

  assert {
    condition     = output.sidecar_container_definition.name == "chipwatch" && output.sidecar_volume.name == "spool" && output.sidecar_pid_mode == "task"
    error_message = "A task definition has everything that it needs."
  }
}

run "pods_alone" {
  command = plan

  variables {
    pod_identity_associations = { daemon = { cluster_name = "train" } }
  }

  assert {
    condition     = local.dimensions == tolist(["k8s_cluster", "k8s_node"])
    error_message = "Dashboard and alarms have the chart's default metrics."
  }
}
