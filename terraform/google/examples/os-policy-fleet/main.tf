# Machines that are there already, with their service accounts: VM Manager installs the agent on those that have a label, at
# most five at a time. The machines need VM Manager's agent: metadata enable-osconfig=TRUE, and a service account.

provider "google" {
  project = var.project_id
}

# To write metrics is all that the agent needs on top of what they may, and to read what it is installed from.
module "service_account" {
  source   = "../../modules/service-account"
  for_each = var.service_account_emails

  project_id  = var.project_id
  email       = each.value
  wheelhouses = regexall("^gs://.+/", var.constraints) # where constraints.txt is
}

module "os_policy" {
  source = "../../modules/os-policy"

  project_id    = var.project_id
  zones         = var.zones
  package_state = var.package_state
  rollout       = { fixed = 5, min_wait_duration = "600s" }

  instance_filter = {
    inclusion_labels = [{ chipwatch = "yes" }]
    exclusion_labels = [{ goog-gke-node = "" }] # the chart is for these
    inventories      = [{ os_short_name = "debian", os_version = "12*" }, { os_short_name = "ubuntu", os_version = "24.04" }]
  }

  agent = {
    version      = var.agent_version
    level        = "detailed"
    common_dims  = ["hostname"]
    index_url    = var.index_url
    constraints  = var.constraints
    wheel_sha256 = var.wheel_sha256
  }
}
