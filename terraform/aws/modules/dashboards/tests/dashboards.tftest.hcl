mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
}

run "all_families" {
  command = plan

  assert {
    condition     = length(regexall("eu-central-1", output.dashboard_body)) > 0
    error_message = "Graphs have the provider's region by default."
  }

  assert {
    condition     = [for widget in jsondecode(output.dashboard_body).widgets : widget.properties.markdown if widget.type == "text" && !can(regex("^## Only ", widget.properties.markdown))] == ["## Host", "## Jobs", "## GPU", "## Neuron", "## Fabric", "## Health"]
    error_message = "The families stand one below the other, beside the rows that a plain machine leaves empty."
  }
}

run "neuron_by_runtime" {
  command = plan

  variables {
    region     = "us-west-2"
    families   = ["neuron"]
    dimensions = ["instance_id", "neuron_runtime_tag"]
    level      = "all"
  }

  assert {
    condition     = strcontains(output.dashboard_body, "\\\"neuron_device\\\",\\\"neuron_runtime_tag\\\",\\\"instance_id\\\"}")
    error_message = "The runtime is a dimension of a core's points."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_cloudwatch_dashboard.this) == 0
    error_message = "create = false creates nothing."
  }
}
