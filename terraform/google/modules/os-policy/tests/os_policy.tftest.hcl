mock_provider "google" {}

variables {
  project_id      = "some-project"
  zones           = ["us-central1-a"]
  instance_filter = { all = true }
  agent           = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "as_usual" {
  command = plan

  assert {
    condition     = endswith(output.enforce_script, "exit 100 # what VM Manager takes for success\n") && startswith(output.enforce_script, "#!/bin/sh\n") && startswith(output.validate_script, "#!/bin/sh\n")
    error_message = "Scripts are run by their first line, and end as VM Manager wants it."
  }

  assert {
    condition     = google_os_config_os_policy_assignment.this["us-central1-a"].rollout[0].disruption_budget[0].percent == 10 && google_os_config_os_policy_assignment.this["us-central1-a"].rollout[0].disruption_budget[0].fixed == null
    error_message = "A tenth of the machines at a time."
  }
}

run "removed" {
  command = plan

  variables {
    package_state = "removed"
    zones         = ["us-central1-a", "europe-west4-b"]
    rollout       = { fixed = 3 }
  }

  assert {
    condition     = keys(google_os_config_os_policy_assignment.this) == ["europe-west4-b", "us-central1-a"] && google_os_config_os_policy_assignment.this["europe-west4-b"].rollout[0].disruption_budget[0].percent == null
    error_message = "Each zone has its policy."
  }

  assert {
    condition     = strcontains(output.enforce_script, "chipwatch: it is gone") && !strcontains(output.enforce_script, "pip install")
    error_message = "A removed package must not be installed."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(google_os_config_os_policy_assignment.this) == 0 && output.ids == {}
    error_message = "create = false creates nothing."
  }
}

run "refuses_a_script_that_is_too_long" {
  command = plan

  variables {
    agent = { version = "0.1.0", wheelhouse = "/wheels", config = join("\n", [for n in range(1024) : "# ${format("%032d", n)}"]) }
  }

  expect_failures = [google_os_config_os_policy_assignment.this]
}
