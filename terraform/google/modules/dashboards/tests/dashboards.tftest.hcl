mock_provider "google" {}

variables {
  project_id = "some-project"
}

run "all_families" {
  command = plan

  variables {
    families = ["tpu", "neuron", "gpu", "host", "health", "fabric"]
  }

  assert {
    condition     = [for tile in jsondecode(output.json).mosaicLayout.tiles : tile.widget.text.content if can(tile.widget.text) && !can(regex("^## Only ", tile.widget.text.content))] == ["## Host", "## Jobs", "## GPU", "## Neuron", "## TPU", "## Fabric", "## Health"]
    error_message = "The families stand one below the other, beside the rows that a plain machine leaves empty."
  }
}

run "refuses_more_widgets_than_google_allows" {
  command = plan

  variables {
    families = ["tpu", "neuron", "gpu", "host", "health", "fabric"]
    level    = "all"
  }

  expect_failures = [google_monitoring_dashboard.this]
}

run "another_prefix" {
  command = plan

  variables {
    name          = "Our fleet"
    metric_prefix = "workload.googleapis.com/ours/"
  }

  assert {
    condition     = jsondecode(output.json).displayName == "Our fleet" && strcontains(output.json, "metric.type = \\\"workload.googleapis.com/ours/cpu/utilization\\\"") && !strcontains(output.json, "custom.googleapis.com")
    error_message = "Graphs are of the metrics with the prefix."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(google_monitoring_dashboard.this) == 0 && output.id == null
    error_message = "create = false creates nothing."
  }
}
