# A group of machines with GPUs that install the agent when they start, with its dashboard and alert policies.

provider "google" {
  project = var.project_id
  region  = var.region
}

locals {
  labels = { app = "chipwatch" }
}

module "chipwatch" {
  source = "../../"

  project_id = var.project_id
  name       = var.name
  families   = ["host", "gpu", "health"]
  labels     = local.labels

  agent = {
    version     = var.agent_version
    common_dims = ["hostname", "instance_type"]
    dims        = { team = "vision" }
    wheelhouse  = var.wheelhouse
    sums_sha256 = var.sums_sha256
    config      = <<-EOT
      [sinks.google.statistic]
      "gpu.temperature" = "max"
    EOT
  }

  instance_template = {
    machine_type = var.machine_type
    region       = var.region
    source_image = var.source_image
    disk         = { size_gb = 100, kms_key = var.kms_key }
    network      = { subnetwork = var.subnetwork }
    shielded     = { secure_boot = false } # NVIDIA's driver in this image is not signed
  }

  notification_channels = var.notification_channels
  alarms                = { gpu-idle = { threshold = 10, minutes = 30 } }
}

resource "google_compute_region_instance_group_manager" "training" {
  project            = var.project_id
  region             = var.region
  name               = var.name
  base_instance_name = var.name
  target_size        = var.instances

  version {
    instance_template = module.chipwatch.instance_template_self_link_unique # a new version of the agent is a new template
  }

  update_policy {
    type                  = "PROACTIVE"
    minimal_action        = "REPLACE"
    max_surge_fixed       = 0
    max_unavailable_fixed = 3 # at least as many as zones
  }
}
