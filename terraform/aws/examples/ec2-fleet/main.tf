# An Auto Scaling group whose instances install the agent, with its dashboard and alarms.

provider "aws" {
  region = var.region
}

data "aws_partition" "current" {}

locals {
  family      = split(".", var.instance_type)[0]
  accelerator = local.family != "g4ad" && can(regex("^(p[0-9]|g[0-9]|gr[0-9])", local.family)) ? "gpu" : can(regex("^(trn|inf)[0-9]", local.family)) ? "neuron" : "none"
}

module "chipwatch" {
  source = "../../"

  name       = var.name
  dimensions = ["instance_id", "instance_type", "autoscaling_group"]
  families   = compact(["host", "health", local.accelerator == "none" ? "" : local.accelerator, var.efa_interfaces > 0 ? "fabric" : ""])

  ec2 = {
    image_id               = var.image_id
    instance_type          = var.instance_type
    vpc_security_group_ids = var.security_group_ids
    efa_interfaces         = var.efa_interfaces
    placement_group        = var.placement_group
    capacity_reservation   = var.capacity_reservation
    agent_version          = var.agent_version
    wheelhouse             = var.wheelhouse
    sums_sha256            = var.sums_sha256

    # For the update of the agent, and for logging in by Session Manager: aws ssm start-session --target INSTANCE. No port is open and no key is needed.
    policy_arns = { ssm = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore" }
  }

  autoscaling_groups = [aws_autoscaling_group.training.name]
  alarm_actions      = var.alarm_actions
  tags               = { app = "chipwatch", fleet = var.name }
}

# The agent on running instances: another agent_version or wheelhouse is rolled out in place.
module "ssm" {
  source = "../../modules/ssm"

  name            = "${var.name}-chipwatch"
  script          = module.chipwatch.user_data
  target_tags     = { fleet = [var.name] }
  max_concurrency = var.max_concurrency
  max_errors      = var.max_errors
  tags            = { app = "chipwatch" }
}

resource "aws_autoscaling_group" "training" {
  name_prefix         = "${var.name}-"
  min_size            = 0
  max_size            = var.instances
  desired_capacity    = var.instances
  vpc_zone_identifier = var.subnet_ids
  enabled_metrics     = ["GroupInServiceInstances"] # what agent-silent expects

  launch_template {
    id      = module.chipwatch.launch_template_id
    version = module.chipwatch.launch_template_version # for new instances; those that run stay
  }

  dynamic "instance_refresh" {
    for_each = var.refresh_instances ? ["Rolling"] : []

    content {
      strategy = instance_refresh.value
    }
  }

  tag {
    key                 = "app"
    value               = "chipwatch"
    propagate_at_launch = true
  }
}
