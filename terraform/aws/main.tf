# All at once, for one fleet: roles, launch template, ECS daemon and sidecar, dashboard and alarms. Each submodule stands on its own too.

locals {
  # Where the instances install from is what they may read.
  wheelhouses = var.ec2 == null ? [] : [for url in compact([try(var.ec2.wheelhouse, null)]) : url if startswith(url, "s3://")]
  s3_objects  = var.ec2 == null ? [] : [for url in compact([try(var.ec2.constraints, null)]) : url if startswith(url, "s3://")]

  # Dashboard and alarms find only series with exactly these: what instances, the ECS daemon, the
  # sidecar or the chart send by themselves.
  eks     = length(var.pod_identity_associations) > 0 || var.irsa != null
  ecs     = var.ecs == null ? null : try(var.ecs.create_daemon, true) ? "daemon" : "sidecar"
  senders = var.ec2 != null ? "ec2" : local.ecs != null ? local.ecs : local.eks ? "eks" : "ec2"
  dimensions = coalesce(var.dimensions, {
    ec2     = ["instance_id", "instance_type"]
    daemon  = ["instance_id", "instance_type", "ecs_cluster"]
    sidecar = ["ecs_cluster", "ecs_task_family", "ecs_task"]
    eks     = ["k8s_cluster", "k8s_node"]
  }[local.senders])
}

module "iam" {
  source = "./modules/iam"

  create                    = var.create
  create_ec2                = var.ec2 != null
  create_ecs_task           = var.ecs != null
  create_pod_identity       = length(var.pod_identity_associations) > 0
  create_irsa               = var.irsa != null
  name                      = var.name
  use_name_prefix           = var.use_name_prefix
  path                      = var.path
  permissions_boundary      = var.permissions_boundary
  region                    = var.region
  namespace                 = var.namespace
  dimensions                = local.dimensions
  wheelhouses               = local.wheelhouses
  s3_objects                = local.s3_objects
  ec2_policy_arns           = var.ec2 == null ? {} : try(var.ec2.policy_arns, null)
  pod_identity_associations = var.pod_identity_associations
  irsa                      = var.irsa == null ? { oidc_provider_arn = null, service_accounts = [] } : var.irsa
  tags                      = var.tags
}

module "ec2" {
  source = "./modules/ec2"
  count  = var.create && var.ec2 != null ? 1 : 0

  name                        = var.name
  use_name_prefix             = var.use_name_prefix
  region                      = var.region
  image_id                    = var.ec2.image_id
  instance_type               = try(var.ec2.instance_type, null)
  instance_profile_arn        = module.iam.instance_profile_arn
  key_name                    = try(var.ec2.key_name, null)
  efa_interfaces              = try(var.ec2.efa_interfaces, null)
  placement_group             = try(var.ec2.placement_group, null)
  capacity_reservation        = try(var.ec2.capacity_reservation, null)
  vpc_security_group_ids      = try(var.ec2.vpc_security_group_ids, null)
  http_put_response_hop_limit = try(var.ec2.http_put_response_hop_limit, null)
  instance_metadata_tags      = try(var.ec2.instance_metadata_tags, null)
  agent_version               = var.ec2.agent_version
  namespace                   = var.namespace
  dimensions                  = local.dimensions
  level                       = var.level
  extras                      = try(var.ec2.extras, null)
  sinks                       = try(var.ec2.sinks, null)
  config                      = try(var.ec2.config, null)
  wheelhouse                  = try(var.ec2.wheelhouse, null)
  sums_sha256                 = try(var.ec2.sums_sha256, null)
  index_url                   = try(var.ec2.index_url, null)
  constraints                 = try(var.ec2.constraints, null)
  wheel_sha256                = try(var.ec2.wheel_sha256, null)
  tags                        = var.tags
}

module "ecs" {
  source = "./modules/ecs"
  count  = var.create && var.ecs != null ? 1 : 0

  create_daemon        = try(var.ecs.create_daemon, null)
  name                 = var.name
  use_name_prefix      = var.use_name_prefix
  path                 = var.path
  permissions_boundary = var.permissions_boundary
  region               = var.region
  image                = var.ecs.image
  accelerator          = try(var.ecs.accelerator, null)
  neuron_devices       = try(var.ecs.neuron_devices, null)
  cpu_architecture     = try(var.ecs.cpu_architecture, null)
  task_role_arn        = module.iam.ecs_task_role_arn
  cluster_arn          = try(var.ecs.cluster_arn, null)
  sidecar_launch_type  = try(var.ecs.sidecar_launch_type, null)
  namespace            = var.namespace
  daemon_dimensions    = local.dimensions
  sidecar_dimensions   = local.senders == "sidecar" ? local.dimensions : null
  level                = var.level
  prometheus_port      = try(var.ecs.prometheus_port, null)
  environment          = try(var.ecs.environment, null)
  secrets              = try(var.ecs.secrets, null)
  tags                 = var.tags
}

module "dashboards" {
  source = "./modules/dashboards"

  create     = var.create && var.create_dashboard
  name       = var.name
  region     = var.region
  namespace  = var.namespace
  dimensions = local.dimensions
  families   = var.families
  level      = var.level

  own_dimensions = var.own_dimensions
}

module "alarms" {
  source = "./modules/alarms"

  create             = var.create && var.create_alarms
  name               = var.name
  region             = var.region
  namespace          = var.namespace
  dimensions         = local.dimensions
  own_dimensions     = var.own_dimensions
  families           = var.families
  level              = var.level
  hosts              = var.hosts
  user_data          = var.ec2 != null
  autoscaling_groups = var.autoscaling_groups
  alarm_actions      = var.alarm_actions
  ok_actions         = var.ok_actions
  alarms             = var.alarms
  tags               = var.tags
}
