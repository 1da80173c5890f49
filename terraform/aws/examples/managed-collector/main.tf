# CloudWatch scrapes the agents' pages, by a managed Prometheus collector: the machines need no role of AWS.

provider "aws" {
  region = var.region
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  tags = { app = "chipwatch" }
  page = "Pages of chipwatch"
}

resource "aws_security_group" "collector" {
  name_prefix = "chipwatch-collector-"
  description = "Managed collector of CloudWatch, which reaches the pages of chipwatch alone"
  vpc_id      = var.vpc_id
  tags        = local.tags
}

resource "aws_vpc_security_group_egress_rule" "pages" {
  security_group_id            = aws_security_group.collector.id
  referenced_security_group_id = var.agents_security_group_id
  description                  = local.page
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "pages" {
  security_group_id            = var.agents_security_group_id
  referenced_security_group_id = aws_security_group.collector.id
  description                  = local.page
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = local.tags
}

resource "aws_prometheus_scraper" "agents" {
  alias = "chipwatch"
  tags  = local.tags

  source {
    vpc {
      security_group_ids = [aws_security_group.collector.id]
      subnet_ids         = var.subnet_ids
    }
  }

  destination {
    cloudwatch {
      dataset_arn = "arn:${data.aws_partition.current.partition}:cloudwatch:${var.region}:${data.aws_caller_identity.current.account_id}:dataset/default"
    }
  }

  scrape_configuration = yamlencode({
    global = { scrape_interval = "60s" }
    scrape_configs = [{
      job_name       = "chipwatch"
      dns_sd_configs = [{ names = [var.agents_dns_name], type = "A", port = var.port }]
    }]
  })

  depends_on = [aws_vpc_security_group_egress_rule.pages, aws_vpc_security_group_ingress_rule.pages]
}
