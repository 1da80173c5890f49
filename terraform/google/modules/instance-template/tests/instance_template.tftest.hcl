mock_provider "google" {}

variables {
  project_id            = "some-project"
  machine_type          = "e2-small"
  service_account_email = "chipwatch@some-project.iam.gserviceaccount.com"
  agent                 = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "as_usual" {
  command = plan

  assert {
    condition     = google_compute_instance_template.this[0].metadata["startup-script"] == output.startup_script && google_compute_instance_template.this[0].metadata["block-project-ssh-keys"] == "TRUE"
    error_message = "The machine installs the agent when it starts."
  }

  assert {
    condition     = google_compute_instance_template.this[0].scheduling[0].on_host_maintenance == "MIGRATE" && alltrue([for on in values(google_compute_instance_template.this[0].shielded_instance_config[0]) : on])
    error_message = "A machine without GPUs moves, and is shielded."
  }

  assert {
    condition     = length(google_compute_instance_template.this[0].network_interface[0].access_config) == 0
    error_message = "By default there is no public address."
  }
}

run "with_accelerators" {
  command = plan

  variables {
    machine_type    = "n1-standard-8"
    accelerators    = [{ type = "nvidia-tesla-t4", count = 2 }]
    use_name_prefix = false
    region          = "us-central1"
    os_config       = true
    shielded        = { secure_boot = false }
    disk            = { size_gb = 200, kms_key = "projects/p/locations/l/keyRings/r/cryptoKeys/k" }
    network         = { subnetwork = "training", public_ip = true, nic_type = "GVNIC" }
    metadata        = { enable-oslogin = "FALSE", owner = "someone" }
    labels          = { app = "chipwatch" }
  }

  assert {
    condition     = google_compute_instance_template.this[0].scheduling[0].on_host_maintenance == "TERMINATE"
    error_message = "A GPU cannot move."
  }

  assert {
    condition     = google_compute_instance_template.this[0].metadata["enable-oslogin"] == "FALSE" && google_compute_instance_template.this[0].metadata["owner"] == "someone" && google_compute_instance_template.this[0].metadata["enable-osconfig"] == "TRUE"
    error_message = "Your metadata has precedence over the module's."
  }

  assert {
    condition     = google_compute_instance_template.this[0].name == "chipwatch" && google_compute_instance_template.this[0].network_interface[0].subnetwork == "training" && length(google_compute_instance_template.this[0].network_interface[0].access_config) == 1
    error_message = "It has the given name, the subnetwork and a public address."
  }
}

run "spot" {
  command = plan

  variables {
    spot = true
  }

  assert {
    condition     = google_compute_instance_template.this[0].scheduling[0].provisioning_model == "SPOT" && !google_compute_instance_template.this[0].scheduling[0].automatic_restart && google_compute_instance_template.this[0].scheduling[0].on_host_maintenance == "TERMINATE"
    error_message = "A spot machine neither moves nor starts again."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(google_compute_instance_template.this) == 0 && output.id == null
    error_message = "create = false creates nothing."
  }
}

run "refuses_a_script_that_is_too_long" {
  command = plan

  variables {
    agent = { version = "0.1.0", wheelhouse = "/wheels", config = join("\n", [for n in range(1000) : "# ${format("%0300d", n)}"]) }
  }

  expect_failures = [google_compute_instance_template.this]
}
