# All at once, for one fleet: service account, instance template, OS policy, dashboard and alert policies. Each submodule stands on
# its own too.

# Checked once, whatever is created.
module "script" {
  source = "./modules/install-script"

  agent = var.agent
}

locals {
  agent = module.script.agent

  # Where the machines install from is what they may read.
  folders = concat(
    startswith(local.agent.wheelhouse, "gs://") ? [local.agent.wheelhouse] : [],
    regexall("^gs://.+/", local.agent.constraints),
  )

  metric_prefix = coalesce(local.agent.metric_prefix, "custom.googleapis.com/chipwatch/")
}

module "service_account" {
  source = "./modules/service-account"

  create             = var.create && var.create_service_account
  project_id         = var.project_id
  metrics_project_id = local.agent.project
  account_id         = coalesce(var.account_id, var.name)
  email              = var.service_account_email
  workload_identity  = var.workload_identity
  principals         = var.principals
  wheelhouses        = local.folders
}

module "instance_template" {
  source = "./modules/instance-template"
  count  = var.create && var.instance_template != null ? 1 : 0

  project_id            = var.project_id
  region                = var.instance_template.region
  name                  = var.name
  use_name_prefix       = var.use_name_prefix
  machine_type          = var.instance_template.machine_type
  source_image          = var.instance_template.source_image
  disk                  = var.instance_template.disk
  network               = var.instance_template.network
  network_tags          = var.instance_template.network_tags
  service_account_email = module.service_account.email
  scopes                = var.instance_template.scopes
  accelerators          = var.instance_template.accelerators
  on_host_maintenance   = var.instance_template.on_host_maintenance
  spot                  = var.instance_template.spot
  shielded              = var.instance_template.shielded
  metadata              = var.instance_template.metadata
  labels                = var.labels
  agent                 = local.agent
}

module "os_policy" {
  source = "./modules/os-policy"
  count  = var.create && var.os_policy != null ? 1 : 0

  project_id      = var.project_id
  name            = var.name
  zones           = var.os_policy.zones
  package_state   = var.os_policy.package_state
  mode            = var.os_policy.mode
  instance_filter = var.os_policy.instance_filter
  rollout         = var.os_policy.rollout
  agent           = local.agent
}

module "dashboards" {
  source = "./modules/dashboards"

  create        = var.create && var.create_dashboard
  project_id    = coalesce(local.agent.project, var.project_id)
  name          = var.name
  families      = var.families
  level         = local.agent.level
  metric_prefix = local.metric_prefix
}

module "alert_policies" {
  source = "./modules/alert-policies"

  create                = var.create && var.create_alarms
  project_id            = coalesce(local.agent.project, var.project_id)
  name                  = var.name
  families              = var.families
  level                 = local.agent.level
  metric_prefix         = local.metric_prefix
  resource_types        = var.resource_types
  notification_channels = var.notification_channels
  alarms                = var.alarms
  runbooks              = var.runbooks
  labels                = var.labels
}
