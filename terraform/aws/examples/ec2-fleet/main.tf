# An Auto Scaling group whose instances install the agent, with its dashboard and alarms.

provider "aws" {
  region = var.region
}

module "chipwatch" {
  source = "../../"

  name       = var.name
  dimensions = ["instance_id", "instance_type", "autoscaling_group"]
  families   = ["host", "neuron"]

  ec2 = {
    image_id               = var.image_id
    instance_type          = var.instance_type
    vpc_security_group_ids = var.security_group_ids
    agent_version          = var.agent_version
    wheelhouse             = var.wheelhouse
    sums_sha256            = var.sums_sha256
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
