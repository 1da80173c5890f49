# Dashboard and alarms for machines that send already, and a topic for the alarms.

provider "aws" {
  region = var.region
}

locals {
  tags = { app = "chipwatch" }
}

resource "aws_sns_topic" "pager" {
  name              = "chipwatch-pager"
  kms_master_key_id = var.kms_key_id
  tags              = local.tags
}

module "dashboards" {
  source = "../../modules/dashboards"

  dimensions = var.dimensions
  level      = "detailed"
}

module "alarms" {
  source = "../../modules/alarms"

  dimensions    = var.dimensions
  level         = "detailed"
  hosts         = 12 # with fewer that send agent-silent is in ALARM
  alarm_actions = [aws_sns_topic.pager.arn]
  ok_actions    = [aws_sns_topic.pager.arn]
  tags          = local.tags

  alarms = {
    gpu-idle         = { threshold = 10 }
    neuron-core-busy = { create = false } # for training it is what one wants
    gpu-memory-full  = { threshold = 99, evaluation_periods = 6, datapoints_to_alarm = 6 }
    neuron-core-idle = { alarm_actions = [] } # shown, without a notification
  }
}
