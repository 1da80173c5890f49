# The agent once on each instance of an ECS cluster, seeing the whole host, with its dashboard and alarms.

provider "aws" {
  region = var.region
}

module "chipwatch" {
  source = "../../"

  name     = var.name
  level    = "detailed"
  families = ["host", "gpu"]

  ecs = {
    image       = var.image
    cluster_arn = var.cluster_arn
    accelerator = "nvidia"
    environment = { CHIPWATCH_INTERVAL = "10" }
  }

  alarm_actions = var.alarm_actions
  tags          = { app = "chipwatch" }
}
