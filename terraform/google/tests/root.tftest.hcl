mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "chipwatch@some-project.iam.gserviceaccount.com" }
  }
}

variables {
  project_id = "some-project"
  agent      = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "what_is_asked_for" {
  command = plan

  assert {
    condition     = output.instance_template_id == null && output.os_policy_ids == null && length(output.service_account_annotations) == 0
    error_message = "What is not asked for is not created."
  }
}

run "all" {
  command = apply

  variables {
    agent             = { version = "0.1.0", wheelhouse = "gs://wheels/chipwatch" }
    instance_template = { machine_type = "g2-standard-8" }
    os_policy         = { zones = ["us-central1-a"], instance_filter = { all = true } }
    workload_identity = { cluster = {} }
  }

  assert {
    condition     = output.service_account_annotations["iam.gke.io/gcp-service-account"] == "chipwatch@some-project.iam.gserviceaccount.com" && output.instance_template_id != null && keys(output.os_policy_ids) == ["us-central1-a"] && contains(keys(output.alert_policy_names), "memory-full")
    error_message = "One module does it all."
  }
}

run "what_it_is_installed_from_may_be_read" {
  command = plan

  variables {
    agent = { version = "0.1.0", constraints = "gs://wheels/chipwatch/constraints.txt", wheel_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  assert {
    condition     = local.folders == tolist(["gs://wheels/chipwatch/"])
    error_message = "The folder of the constraints may be read."
  }
}

run "nothing" {
  command = plan

  variables {
    create            = false
    instance_template = { machine_type = "g2-standard-8" }
    os_policy         = { zones = ["us-central1-a"], instance_filter = { all = true } }
    workload_identity = { cluster = {} }
  }

  assert {
    condition     = output.service_account_email == null && output.instance_template_id == null && output.os_policy_ids == null && output.dashboard_id == null && output.alert_policy_names == {}
    error_message = "create = false creates nothing."
  }
}
