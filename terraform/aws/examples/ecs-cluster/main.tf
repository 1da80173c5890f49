# A whole ECS cluster of GPU instances with the agent on each: cluster, instances with the GPU runtime, daemon, dashboard and alarms.

provider "aws" {
  region = var.region
}

data "aws_partition" "current" {}

# Amazon's image for ECS with NVIDIA's driver and container runtime, looked up at each plan.
data "aws_ssm_parameter" "image" {
  name = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"
}

locals {
  tags     = { app = "chipwatch" }
  policies = "arn:${data.aws_partition.current.partition}:iam::aws:policy"

  # The agent takes no GPU of a task and sees all of them: the nvidia runtime is Docker's default for that.
  user_data = <<-EOT
    #!/bin/bash
    set -euo pipefail
    cat >> /etc/ecs/ecs.config <<'END'
    ECS_CLUSTER=${aws_ecs_cluster.this.name}
    ECS_ENABLE_GPU_SUPPORT=true
    END
    mkdir -p /etc/docker
    nvidia-ctk runtime configure --runtime=docker --set-as-default
    systemctl restart docker
  EOT
}

resource "aws_ecs_cluster" "this" {
  name = var.name
  tags = local.tags

  setting {
    name  = "containerInsights"
    value = "disabled" # it bills a second set of metrics for the same hosts
  }
}

data "aws_iam_policy_document" "instance_trust" {
  statement {
    sid     = "Instances"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

# What an instance needs to join the cluster, and to be logged in by Session Manager. The agent's task has another role.
resource "aws_iam_role" "instance" {
  name_prefix        = "${var.name}-instance-"
  description        = "Instances of the ECS cluster ${var.name}"
  assume_role_policy = data.aws_iam_policy_document.instance_trust.json
  tags               = local.tags
}

resource "aws_iam_role_policy_attachment" "instance" {
  for_each = toset(["service-role/AmazonEC2ContainerServiceforEC2Role", "AmazonSSMManagedInstanceCore"])

  role       = aws_iam_role.instance.name
  policy_arn = "${local.policies}/${each.value}"
}

resource "aws_iam_instance_profile" "instance" {
  name_prefix = "${var.name}-instance-"
  role        = aws_iam_role.instance.name
  tags        = local.tags
}

resource "aws_launch_template" "instance" {
  name_prefix            = "${var.name}-"
  description            = "Instances of the ECS cluster ${var.name}"
  update_default_version = true
  image_id               = nonsensitive(data.aws_ssm_parameter.image.value)
  instance_type          = var.instance_type
  vpc_security_group_ids = var.security_group_ids
  user_data              = base64encode(local.user_data)
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.instance.arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1 # the agent has the host's network
  }

  dynamic "tag_specifications" {
    for_each = ["instance", "volume", "network-interface"]

    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = var.name })
    }
  }
}

resource "aws_autoscaling_group" "instances" {
  name_prefix         = "${var.name}-"
  min_size            = 0
  max_size            = var.instances
  desired_capacity    = var.instances
  vpc_zone_identifier = var.subnet_ids
  enabled_metrics     = ["GroupInServiceInstances"] # what agent-silent expects

  launch_template {
    id      = aws_launch_template.instance.id
    version = aws_launch_template.instance.latest_version
  }

  tag {
    key                 = "app"
    value               = "chipwatch"
    propagate_at_launch = true
  }
}

module "chipwatch" {
  source = "../../"

  name     = var.name
  families = ["host", "gpu"]

  ecs = {
    image       = var.image
    cluster_arn = aws_ecs_cluster.this.arn
    accelerator = "nvidia"
  }

  autoscaling_groups = [aws_autoscaling_group.instances.name]
  alarm_actions      = var.alarm_actions
  tags               = local.tags
}
