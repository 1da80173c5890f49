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
  type        = any
  default     = null

  validation {
    condition     = var.ec2 == null || (length(setsubtract(try(keys(var.ec2), ["-"]), ["image_id", "agent_version", "instance_type", "key_name", "efa_interfaces", "placement_group", "capacity_reservation", "vpc_security_group_ids", "http_put_response_hop_limit", "instance_metadata_tags", "policy_arns", "extras", "sinks", "config", "wheelhouse", "sums_sha256", "index_url", "constraints", "wheel_sha256"])) == 0 && length(setsubtract(["image_id", "agent_version"], try(keys(var.ec2), []))) == 0)
    error_message = "ec2: the keys are image_id, agent_version, instance_type, key_name, efa_interfaces, placement_group, capacity_reservation, vpc_security_group_ids, http_put_response_hop_limit, instance_metadata_tags, policy_arns, extras, sinks, config, wheelhouse, sums_sha256, index_url, constraints, wheel_sha256; image_id and agent_version are required."
  }
}

variable "ecs" {
  description = "Containers on ECS, as the module ecs takes them; none unless set. The daemon needs cluster_arn; without create_daemon there is the sidecar alone."
  type        = any
  default     = null

  validation {
    condition     = var.ecs == null || (length(setsubtract(try(keys(var.ecs), ["-"]), ["image", "create_daemon", "cluster_arn", "accelerator", "neuron_devices", "cpu_architecture", "sidecar_launch_type", "prometheus_port", "environment", "secrets"])) == 0 && length(setsubtract(["image"], try(keys(var.ecs), []))) == 0)
    error_message = "ecs: the keys are image, create_daemon, cluster_arn, accelerator, neuron_devices, cpu_architecture, sidecar_launch_type, prometheus_port, environment, secrets; image is required."
  }
}

variable "pod_identity_associations" {
  description = "Service accounts of EKS clusters that get a role by Pod Identity, by names of your own."
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition     = can([for one in values(var.pod_identity_associations) : keys(one)]) && length(setsubtract(flatten(try([for one in values(var.pod_identity_associations) : keys(one)], [])), ["cluster_name", "namespace", "service_account"])) == 0 && alltrue([for one in try(values(var.pod_identity_associations), []) : length(setsubtract(["cluster_name"], try(keys(one), []))) == 0])
    error_message = "pod_identity_associations: the keys of each are cluster_name, namespace, service_account; cluster_name is required."
  }
}

variable "irsa" {
  description = "The cluster's OpenID Connect provider, and the service accounts (\"namespace:name\") that get a role; none unless set."
  type        = any
  default     = null

  validation {
    condition     = var.irsa == null || (length(setsubtract(try(keys(var.irsa), ["-"]), ["oidc_provider_arn", "service_accounts"])) == 0 && length(setsubtract(["oidc_provider_arn"], try(keys(var.irsa), []))) == 0)
    error_message = "irsa: the keys are oidc_provider_arn, service_accounts; oidc_provider_arn is required."
  }
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
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition     = can([for one in values(var.alarms) : keys(one)]) && length(setsubtract(flatten(try([for one in values(var.alarms) : keys(one)], [])), ["create", "threshold", "evaluation_periods", "datapoints_to_alarm", "treat_missing_data", "actions_enabled", "alarm_actions", "ok_actions", "insufficient_data_actions"])) == 0
    error_message = "alarms: the keys of each are create, threshold, evaluation_periods, datapoints_to_alarm, treat_missing_data, actions_enabled, alarm_actions, ok_actions, insufficient_data_actions."
  }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
  nullable    = false
}
