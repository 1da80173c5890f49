# A template for machines that install the agent when they start, and may do nothing but write metrics.

module "script" {
  source = "../install-script"

  agent = var.agent
}

locals {
  # a2, a3, a4, a4x, g2, g4 and ct5lp, tpu types include accelerators, and Compute Engine moves none of them to another host.
  has_accelerators = length(var.accelerators) > 0 || can(regex("^(a[2-9]|g[2-9]|ct[0-9]|tpu)[a-z0-9]*-", var.machine_type))
  stays            = local.has_accelerators || var.spot || var.on_host_maintenance == "TERMINATE"
}

resource "google_compute_instance_template" "this" {
  count = var.create ? 1 : 0

  project      = var.project_id
  region       = var.region
  name         = var.use_name_prefix ? null : var.name
  name_prefix  = var.use_name_prefix ? "${var.name}-" : null
  description  = var.description
  machine_type = var.machine_type
  labels       = var.labels
  tags         = var.network_tags

  metadata = merge(
    {
      block-project-ssh-keys = "TRUE"
      enable-oslogin         = "TRUE"
      serial-port-enable     = "FALSE"
    },
    var.os_config ? { enable-osconfig = "TRUE" } : {}, # else as the project has it
    var.metadata,
    { startup-script = module.script.script },
  )

  disk {
    boot         = true
    auto_delete  = true
    source_image = var.source_image
    disk_size_gb = var.disk.size_gb
    disk_type    = var.disk.type
    labels       = var.labels

    dynamic "disk_encryption_key" {
      for_each = var.disk.kms_key == null ? [] : [var.disk.kms_key]

      content {
        kms_key_self_link = disk_encryption_key.value
      }
    }
  }

  network_interface {
    network            = var.network.subnetwork == null ? coalesce(var.network.network, "default") : null
    subnetwork         = var.network.subnetwork
    subnetwork_project = var.network.subnetwork == null ? null : var.network.subnetwork_project
    nic_type           = var.network.nic_type

    dynamic "access_config" {
      for_each = var.network.public_ip ? [1] : []

      content {}
    }
  }

  service_account {
    email  = var.service_account_email
    scopes = var.scopes
  }

  shielded_instance_config {
    enable_secure_boot          = var.shielded.secure_boot
    enable_vtpm                 = var.shielded.vtpm
    enable_integrity_monitoring = var.shielded.integrity_monitoring
  }

  dynamic "guest_accelerator" {
    for_each = var.accelerators

    content {
      type  = guest_accelerator.value.type
      count = guest_accelerator.value.count
    }
  }

  scheduling {
    on_host_maintenance         = local.stays ? "TERMINATE" : "MIGRATE"
    automatic_restart           = !var.spot
    preemptible                 = var.spot
    provisioning_model          = var.spot ? "SPOT" : "STANDARD"
    instance_termination_action = var.spot ? "STOP" : null
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = length(module.script.script) <= 262144
      error_message = "agent: the start-up script is longer than the 256 KiB that a value of metadata may have; config is to blame."
    }
  }
}
