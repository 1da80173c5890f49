# All at once, for one fleet: service account, instance template, OS policy, dashboard and alert policies. Each submodule stands on
# its own too.

# Checked and completed once, whatever is created.
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
  region                = try(var.instance_template.region, null)
  name                  = var.name
  use_name_prefix       = var.use_name_prefix
  machine_type          = var.instance_template.machine_type
  source_image          = try(var.instance_template.source_image, null)
  disk                  = try(var.instance_template.disk, null)
  network               = try(var.instance_template.network, null)
  network_tags          = try(var.instance_template.network_tags, null)
  service_account_email = module.service_account.email
  scopes                = try(var.instance_template.scopes, null)
  accelerators          = try(var.instance_template.accelerators, null)
  on_host_maintenance   = try(var.instance_template.on_host_maintenance, null)
  spot                  = try(var.instance_template.spot, null)
  shielded              = try(var.instance_template.shielded, null)
  metadata              = try(var.instance_template.metadata, null)
  labels                = var.labels
  agent                 = local.agent
}

module "os_policy" {
  source = "./modules/os-policy"
  count  = var.create && var.os_policy != null ? 1 : 0

  project_id      = var.project_id
  name            = var.name
  zones           = var.os_policy.zones
  package_state   = try(var.os_policy.package_state, null)
  mode            = try(var.os_policy.mode, null)
  instance_filter = var.os_policy.instance_filter
  rollout         = try(var.os_policy.rollout, null)
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
