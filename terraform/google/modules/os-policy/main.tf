# A policy of VM Manager for a fleet: machines that the filter finds get the agent, or lose it, whenever they come.

module "script" {
  source = "../install-script"

  agent = var.agent
}

locals {
  installed = var.package_state == "installed"

  # What this policy makes of a machine; another configuration is another.
  fingerprint = module.script.sha256

  validate = local.installed ? templatefile("${path.module}/files/is-installed.sh.tftpl", { fingerprint = local.fingerprint }) : file("${path.module}/files/is-removed.sh")
  enforce = (
    local.installed
    ? "${module.script.script}\n${templatefile("${path.module}/files/installed.sh.tftpl", { fingerprint = local.fingerprint })}"
    : templatefile("${path.module}/files/remove.sh.tftpl", { uninstall = chomp(module.script.uninstall_script) })
  )
}

resource "google_os_config_os_policy_assignment" "this" {
  for_each = var.create ? var.zones : []

  project            = var.project_id
  location           = each.value
  name               = var.name
  description        = local.installed ? "chipwatch ${module.script.agent.version} is installed" : "chipwatch is removed"
  skip_await_rollout = var.skip_await_rollout

  instance_filter {
    all = var.instance_filter.all

    dynamic "inclusion_labels" {
      for_each = var.instance_filter.inclusion_labels

      content {
        labels = inclusion_labels.value
      }
    }

    dynamic "exclusion_labels" {
      for_each = var.instance_filter.exclusion_labels

      content {
        labels = exclusion_labels.value
      }
    }

    dynamic "inventories" {
      for_each = var.instance_filter.inventories

      content {
        os_short_name = inventories.value.os_short_name
        os_version    = inventories.value.os_version
      }
    }
  }

  os_policies {
    id          = "chipwatch"
    description = "chipwatch: ${var.package_state}"
    mode        = var.mode

    resource_groups {
      resources {
        id = "agent"

        exec {
          validate {
            interpreter = "NONE" # the first line of the script names it
            script      = local.validate
          }

          enforce {
            interpreter = "NONE"
            script      = local.enforce
          }
        }
      }
    }
  }

  rollout {
    min_wait_duration = var.rollout.min_wait_duration

    disruption_budget {
      fixed   = var.rollout.fixed
      percent = var.rollout.fixed == null ? coalesce(var.rollout.percent, 10) : null
    }
  }

  lifecycle {
    precondition {
      condition     = length(local.enforce) <= 32768
      error_message = "agent: the script is longer than the 32 KiB that a policy may have; config is to blame."
    }
  }
}
