# Dashboard and alert policies for machines and pods that send already, and an address for the alerts.

provider "google" {
  project = var.project_id
}

resource "google_monitoring_notification_channel" "pager" {
  project      = var.project_id
  display_name = "chipwatch"
  type         = "email"
  labels       = { email_address = var.email }
}

module "dashboards" {
  source = "../../modules/dashboards"

  project_id = var.project_id
  families   = ["host", "gpu", "tpu"]
  level      = "detailed"
}

module "alert_policies" {
  source = "../../modules/alert-policies"

  project_id            = var.project_id
  families              = ["host", "gpu", "tpu"]
  level                 = "detailed"
  resource_types        = ["gce_instance", "k8s_node"]
  notification_channels = [google_monitoring_notification_channel.pager.name]
  labels                = { team = "ml" }

  alarms = {
    gpu-idle        = { threshold = 10, minutes = 30 }
    gpu-memory-full = { threshold = 99, severity = "CRITICAL" }
    agent-silent    = { minutes = 5 }
    tpu-idle        = { notification_channels = [] } # shown, without a notification
  }
}
