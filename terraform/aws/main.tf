# All at once, for one fleet: roles, launch template, ECS daemon and sidecar, dashboard and alarms. Each submodule stands on its own too.

locals {
  # Where the instances install from is what they may read.
  wheelhouses = var.ec2 == null ? [] : [for url in compact([var.ec2.wheelhouse]) : url if startswith(url, "s3://")]
  s3_objects  = var.ec2 == null ? [] : [for url in compact([var.ec2.constraints]) : url if startswith(url, "s3://")]

  # Dashboard and alarms find only series with exactly these: what instances, the ECS daemon, the
  # sidecar or the chart send by themselves.
  eks     = length(var.pod_identity_associations) > 0 || var.irsa != null
  ecs     = var.ecs == null ? null : var.ecs.create_daemon ? "daemon" : "sidecar"
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
  ec2_policy_arns           = var.ec2 == null ? {} : var.ec2.policy_arns
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
  instance_type               = var.ec2.instance_type
  instance_profile_arn        = module.iam.instance_profile_arn
  key_name                    = var.ec2.key_name
  efa_interfaces              = var.ec2.efa_interfaces
  placement_group             = var.ec2.placement_group
  capacity_reservation        = var.ec2.capacity_reservation
  block_device_mappings       = var.ec2.block_device_mappings
  vpc_security_group_ids      = var.ec2.vpc_security_group_ids
  http_put_response_hop_limit = var.ec2.http_put_response_hop_limit
  instance_metadata_tags      = var.ec2.instance_metadata_tags
  agent_version               = var.ec2.agent_version
  namespace                   = var.namespace
  dimensions                  = local.dimensions
  level                       = var.level
  extras                      = var.ec2.extras
  sinks                       = var.ec2.sinks
  config                      = var.ec2.config
  wheelhouse                  = var.ec2.wheelhouse
  sums_sha256                 = var.ec2.sums_sha256
  index_url                   = var.ec2.index_url
  constraints                 = var.ec2.constraints
  wheel_sha256                = var.ec2.wheel_sha256
  tags                        = var.tags
}

module "ecs" {
  source = "./modules/ecs"
  count  = var.create && var.ecs != null ? 1 : 0

  create_daemon        = var.ecs.create_daemon
  name                 = var.name
  use_name_prefix      = var.use_name_prefix
  path                 = var.path
  permissions_boundary = var.permissions_boundary
  region               = var.region
  image                = var.ecs.image
  accelerator          = var.ecs.accelerator
  neuron_devices       = var.ecs.neuron_devices
  cpu_architecture     = var.ecs.cpu_architecture
  task_role_arn        = module.iam.ecs_task_role_arn
  cluster_arn          = var.ecs.cluster_arn
  sidecar_launch_type  = var.ecs.sidecar_launch_type
  namespace            = var.namespace
  daemon_dimensions    = local.dimensions
  sidecar_dimensions   = local.senders == "sidecar" ? local.dimensions : null
  level                = var.level
  prometheus_port      = var.ecs.prometheus_port
  environment          = var.ecs.environment
  secrets              = var.ecs.secrets
  log_retention_days   = var.ecs.log_retention_days
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
  runbooks           = var.runbooks
  tags               = var.tags
}
