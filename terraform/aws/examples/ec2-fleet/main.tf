# An Auto Scaling group whose instances install the agent, with its dashboard and alarms.

provider "aws" {
  region = var.region
}

data "aws_partition" "current" {}

locals {
  # An image with the driver of the type's chips, looked up at each plan.
  family      = split(".", var.instance_type)[0]
  accelerator = local.family != "g4ad" && can(regex("^(p[0-9]|g[0-9]|gr[0-9])", local.family)) ? "gpu" : can(regex("^(trn|inf)[0-9]", local.family)) ? "neuron" : "none"
  cpu         = can(regex("^([a-z]+[0-9]+g[a-z]*|p6e)(-.*)?$", local.family)) ? "arm64" : "x86_64"
  images = {
    gpu    = "/aws/service/deeplearning/ami/${local.cpu}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
    neuron = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"
    none   = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-${local.cpu}"
  }
}

data "aws_ssm_parameter" "image" {
  count = var.image_id == null ? 1 : 0

  name = local.images[local.accelerator]
}

module "chipwatch" {
  source = "../../"

  name       = var.name
  dimensions = ["instance_id", "instance_type", "autoscaling_group"]
  families   = compact(["host", "health", local.accelerator == "none" ? "" : local.accelerator, var.efa_interfaces > 0 ? "fabric" : ""])

  ec2 = {
    image_id               = var.image_id == null ? nonsensitive(data.aws_ssm_parameter.image[0].value) : var.image_id
    instance_type          = var.instance_type
    vpc_security_group_ids = var.security_group_ids
    efa_interfaces         = var.efa_interfaces
    placement_group        = var.placement_group
    capacity_reservation   = var.capacity_reservation
    agent_version          = var.agent_version
    wheelhouse             = var.wheelhouse
    sums_sha256            = var.sums_sha256

    # Logging in by Session Manager: aws ssm start-session --target INSTANCE. No port is open and no key is needed.
    policy_arns = { ssm = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore" }
  }

  autoscaling_groups = [aws_autoscaling_group.training.name]
  alarm_actions      = var.alarm_actions
  tags               = { app = "chipwatch" }
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
    version = module.chipwatch.launch_template_version # a new version of the agent is a new version of the template
  }

  instance_refresh {
    strategy = "Rolling"
  }

  tag {
    key                 = "app"
    value               = "chipwatch"
    propagate_at_launch = true
  }
}
