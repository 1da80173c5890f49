# A training task on Fargate with the agent beside it.

provider "aws" {
  region = var.region
}

data "aws_region" "current" {}

module "iam" {
  source = "../../modules/iam"

  create_ecs_task = true
  tags            = local.tags
}

module "ecs" {
  source = "../../modules/ecs"

  create_daemon       = false
  image               = var.image
  sidecar_launch_type = "FARGATE"
  repository_arns     = var.training_repository_arns
  tags                = local.tags
}

locals {
  tags = { app = "training" }

  training = {
    name            = "training"
    image           = var.training_image
    essential       = true
    command         = ["python", "train.py"]
    linuxParameters = { initProcessEnabled = true }

    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = module.ecs.log_group_name
        awslogs-region        = data.aws_region.current.region
        awslogs-stream-prefix = "training"
        mode                  = "non-blocking"
        max-buffer-size       = "4m"
      }
    }
  }
}

resource "aws_ecs_task_definition" "training" {
  family                   = "training"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = "4096"
  memory                   = "16384"
  task_role_arn            = module.iam.ecs_task_role_arn # attach to it what the training needs itself
  execution_role_arn       = module.ecs.execution_role_arn
  container_definitions    = jsonencode([local.training, module.ecs.sidecar_container_definition])
  tags                     = local.tags

  runtime_platform {
    cpu_architecture        = "X86_64"
    operating_system_family = "LINUX"
  }

  volume {
    name = module.ecs.sidecar_volume.name
  }
}

module "dashboards" {
  source = "../../modules/dashboards"

  name       = "training"
  families   = ["host"]
  dimensions = ["ecs_cluster", "ecs_task_family", "ecs_task"]
}
