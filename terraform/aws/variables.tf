variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_dashboard" {
  description = "Whether to create the dashboard."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_alarms" {
  description = "Whether to create the alarms."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{3,24}$", var.name))
    error_message = "name: 3 to 24 letters, digits, - and _."
  }
}

variable "use_name_prefix" {
  description = "Whether AWS appends something unique to the names of roles and launch template."
  type        = bool
  default     = true
  nullable    = false
}

variable "path" {
  description = "Path of the roles."
  type        = string
  default     = "/"
  nullable    = false
}

variable "permissions_boundary" {
  description = "ARN of the policy that bounds the roles."
  type        = string
  default     = null
}

variable "region" {
  description = "Region of everything; the provider's unless set."
  type        = string
  default     = null
}

variable "namespace" {
  description = "CloudWatch namespace."
  type        = string
  default     = "Chipwatch"
  nullable    = false
}

variable "dimensions" {
  description = "The agents' common_dims; unless set: instance_id and instance_type, with the ECS daemon alone also ecs_cluster; of sidecars alone ecs_cluster, ecs_task_family and ecs_task; of EKS alone k8s_cluster and k8s_node."
  type        = list(string)
  default     = null

  validation {
    condition     = var.dimensions == null || length(coalesce(var.dimensions, ["some"])) > 0
    error_message = "dimensions: at least one word of the agents' common_dims, or null."
  }
}

variable "own_dimensions" {
  description = "Names of the dimensions that the agents have besides, by `--dim KEY=VALUE` or `[dims]` in their configuration."
  type        = set(string)
  default     = []
  nullable    = false
}

variable "level" {
  description = "How much is sent: basic, detailed or all; every series costs."
  type        = string
  default     = "basic"
  nullable    = false
}

variable "families" {
  description = "What dashboard and alarms are about: host, gpu, neuron, health, fabric."
  type        = set(string)
  default     = ["host", "gpu", "neuron", "health", "fabric"]
  nullable    = false
}

variable "ec2" {
  description = "Instances that install the agent by user-data, as the module ec2 takes them; none unless set."
  type = object({
    image_id        = string
    agent_version   = string
    instance_type   = optional(string)
    key_name        = optional(string)
    efa_interfaces  = optional(number)
    placement_group = optional(string)
    capacity_reservation = optional(object({
      id                 = optional(string)
      resource_group_arn = optional(string)
      is_block           = optional(bool, false)
    }))
    block_device_mappings = optional(map(object({
      delete_on_termination = optional(bool, true)
      encrypted             = optional(bool, true)
      iops                  = optional(number)
      kms_key_id            = optional(string)
      throughput            = optional(number)
      volume_size           = optional(number)
      volume_type           = optional(string, "gp3")
    })))
    vpc_security_group_ids      = optional(list(string))
    http_put_response_hop_limit = optional(number)
    instance_metadata_tags      = optional(bool)
    policy_arns                 = optional(map(string))
    extras                      = optional(list(string))
    sinks                       = optional(list(string))
    config                      = optional(string)
    wheelhouse                  = optional(string)
    sums_sha256                 = optional(string)
    index_url                   = optional(string)
    constraints                 = optional(string)
    wheel_sha256                = optional(string)
  })
  default = null
}

variable "ecs" {
  description = "Containers on ECS, as the module ecs takes them; none unless set. The daemon needs cluster_arn; without create_daemon there is the sidecar alone."
  type = object({
    image               = string
    create_daemon       = optional(bool, true)
    cluster_arn         = optional(string)
    accelerator         = optional(string)
    neuron_devices      = optional(number)
    cpu_architecture    = optional(string)
    sidecar_launch_type = optional(string)
    prometheus_port     = optional(number)
    environment         = optional(map(string))
    secrets             = optional(map(string))
    log_retention_days  = optional(number)
  })
  default = null
}

variable "pod_identity_associations" {
  description = "Service accounts of EKS clusters that get a role by Pod Identity, by names of your own."
  type = map(object({
    cluster_name    = string
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false
}

variable "irsa" {
  description = "The cluster's OpenID Connect provider, and the service accounts (\"namespace:name\") that get a role; none unless set."
  type = object({
    oidc_provider_arn = string
    service_accounts  = optional(list(string), ["chipwatch:chipwatch"])
  })
  default = null
}

variable "hosts" {
  description = "How many machines should send, besides the instances of autoscaling_groups, as the module alarms takes it."
  type        = number
  default     = 0
  nullable    = false
}

variable "autoscaling_groups" {
  description = "Names of Auto Scaling groups whose instances in service should send, as the module alarms takes them."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of what happens at an alarm."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "ok_actions" {
  description = "ARNs of what happens when it is over."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "alarms" {
  description = "Changes to alarms, by name, as the module alarms takes it: { gpu-idle = { threshold = 10 } }."
  type = map(object({
    create                    = optional(bool, true)
    threshold                 = optional(number)
    evaluation_periods        = optional(number)
    datapoints_to_alarm       = optional(number)
    treat_missing_data        = optional(string)
    actions_enabled           = optional(bool)
    alarm_actions             = optional(list(string))
    ok_actions                = optional(list(string))
    insufficient_data_actions = optional(list(string))
  }))
  default  = {}
  nullable = false
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "runbooks" {
  description = "Folder or address of the pages about the alarms, for their descriptions."
  type        = string
  default     = "https://chipwatch.example/source/docs/runbooks"
  nullable    = false
}
