mock_provider "google" {}

variables {
  project_id = "some-project"
}

run "as_usual" {
  command = plan

  variables {
    families = ["host", "gpu"]
  }

  assert {
    condition     = length(setsubtract(["gpu-xid", "container-memory-full"], keys(google_monitoring_alert_policy.this))) == 0 && contains(keys(google_monitoring_metric_descriptor.this), "gpu/xid")
    error_message = "A metric that no machine has written yet has a policy too; the metric is made first, since Google refuses the policy otherwise."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["agent-silent"].conditions[0].condition_absent[0].filter == "metric.type = \"custom.googleapis.com/chipwatch/cpu/utilization\" AND resource.type = \"gce_instance\""
    error_message = "Silence is that of a metric that every host sends."
  }

  assert {
    condition     = !contains(keys(google_monitoring_alert_policy.this), "gpu-throttled") && google_monitoring_alert_policy.this["gpu-idle"].conditions[0].condition_threshold[0].threshold_value == 5
    error_message = "What is not sent at this level has no policy."
  }
}

run "otherwise" {
  command = plan

  variables {
    name                  = "prod"
    families              = ["gpu"]
    level                 = "all"
    resource_types        = ["k8s_node", "gce_instance"]
    notification_channels = ["projects/p/notificationChannels/1"]
    auto_close            = "7200s"
    labels                = { team = "ml" }
    alarms = {
      gpu-idle      = { threshold = 10, minutes = 30, severity = "ERROR", enabled = false, notification_channels = [] }
      gpu-throttled = { create = false }
      agent-silent  = { minutes = 5 }
      gpu-xid       = { create = false }
      tpu-idle      = { threshold = 1 }
    }
  }

  assert {
    condition     = google_monitoring_alert_policy.this["gpu-idle"].display_name == "prod-gpu-idle" && [for one in google_monitoring_alert_policy.this["gpu-idle"].conditions : one.display_name if one.condition_threshold[0].threshold_value == 10 && one.condition_threshold[0].duration == "1800s"] == ["GPU idle (k8s_node)", "GPU idle (gce_instance)"]
    error_message = "Every resource that sends has a condition, with your threshold."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["gpu-idle"].severity == "ERROR" && !google_monitoring_alert_policy.this["gpu-idle"].enabled && length(google_monitoring_alert_policy.this["gpu-idle"].notification_channels) == 0
    error_message = "Settings of one alarm have precedence over settings of all."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["gpu-lost"].notification_channels == tolist(["projects/p/notificationChannels/1"]) && google_monitoring_alert_policy.this["gpu-lost"].alert_strategy[0].auto_close == "7200s" && google_monitoring_alert_policy.this["gpu-lost"].user_labels == tomap({ team = "ml", chipwatch-alarm = "gpu-lost" })
    error_message = "The others have the given settings."
  }

  assert {
    condition     = !contains(keys(google_monitoring_alert_policy.this), "gpu-xid") && google_monitoring_alert_policy.this["agent-silent"].conditions[0].condition_absent[0].duration == "300s" && !contains(keys(google_monitoring_alert_policy.this), "gpu-throttled") && !contains(keys(google_monitoring_alert_policy.this), "tpu-idle")
    error_message = "Patience can be another, and an alarm can be left out."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(google_monitoring_alert_policy.this) == 0 && output.names == {}
    error_message = "create = false creates nothing."
  }
}
