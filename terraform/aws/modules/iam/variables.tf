variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "create_ec2" {
  description = "Whether to create a role and an instance profile for EC2."
  type        = bool
  default     = false
  nullable    = false
}

variable "create_ecs_task" {
  description = "Whether to create a role for ECS tasks."
  type        = bool
  default     = false
  nullable    = false
}

variable "create_pod_identity" {
  description = "Whether to create a role for EKS Pod Identity, and the associations."
  type        = bool
  default     = false
  nullable    = false
}

variable "create_irsa" {
  description = "Whether to create a role for service accounts of EKS by its OpenID Connect provider (IRSA)."
  type        = bool
  default     = false
  nullable    = false
}

variable "name" {
  description = "What the names of the roles begin with."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9+=,.@_-]{1,24}$", var.name))
    error_message = "name: 1 to 24 letters, digits and +=,.@_- (IAM allows 38 characters, including the suffix)."
  }
}

variable "use_name_prefix" {
  description = "Whether AWS appends something unique to the names."
  type        = bool
  default     = true
  nullable    = false
}

variable "path" {
  description = "Path of roles and instance profile."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([!-~]{1,510}/)?$", var.path))
    error_message = "path: begins and ends with a slash, as in /monitoring/; at most 512 characters."
  }
}

variable "permissions_boundary" {
  description = "ARN of the policy that bounds the roles."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary == null || can(regex("^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[!-~]+$", var.permissions_boundary))
    error_message = "permissions_boundary: the ARN of a policy, as in arn:aws:iam::123456789012:policy/boundary."
  }
}

variable "region" {
  description = "Region of the ECS tasks and EKS clusters; the provider's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null || can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "namespace" {
  description = "CloudWatch namespace that the agent may send into."
  type        = string
  default     = "Chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_./#-][A-Za-z0-9_./#:-]{0,254}$", var.namespace)) && !startswith(var.namespace, "AWS/")
    error_message = "namespace: 1 to 255 letters, digits and _./#:- ; it begins neither with a colon nor with AWS/."
  }
}

variable "dimensions" {
  description = "The agent's common_dims. With autoscaling_group the roles may also ask EC2 for tags."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(distinct(var.dimensions)) == length(var.dimensions) && length(setsubtract(var.dimensions, ["instance_id", "instance_type", "ami_id", "neuron_runtime_tag", "region", "availability_zone", "account_id", "autoscaling_group", "hostname", "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container", "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container", "gcp_project", "gcp_zone", "slurm_job", "slurm_step", "slurm_partition", "slurm_rank", "user", "run_id"])) == 0
    error_message = "dimensions: words of the agent's common_dims, each once, as in [\"instance_id\", \"instance_type\"]. The words are those of `chipwatch run --help`."
  }
}

variable "wheelhouses" {
  description = "Folders of wheels on S3, s3://BUCKET/PREFIX, that instances may install from."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for wheels in var.wheelhouses : can(regex("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._/@+=-]+$", wheels))])
    error_message = "wheelhouses: folders on S3, as in s3://bucket/chipwatch/0.1.0: letters, digits and ._/@+=-"
  }
}

variable "s3_objects" {
  description = "Single files on S3, s3://BUCKET/KEY, that instances may read: constraints, for instance."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for object in var.s3_objects : can(regex("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._/@+=-]*[A-Za-z0-9._@+=-]$", object))])
    error_message = "s3_objects: files on S3, as in s3://bucket/chipwatch/constraints.txt: letters, digits and ._/@+=-"
  }
}

variable "ec2_policy_arns" {
  description = "More policies for the instances' role, by names of your own; AmazonSSMManagedInstanceCore, for instance."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.ec2_policy_arns) <= 20 && alltrue([for policy in values(var.ec2_policy_arns) : can(regex("^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[!-~]+$", policy))])
    error_message = "ec2_policy_arns: at most 20 ARNs of policies, as in { ssm = \"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore\" }."
  }
}

variable "pod_identity_associations" {
  description = "Service accounts that get the role by Pod Identity, by names of your own."
  type = map(object({
    cluster_name    = string
    namespace       = optional(string, "chipwatch")
    service_account = optional(string, "chipwatch")
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for pod in try(values(var.pod_identity_associations), []) : can(regex("^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$", try(pod.cluster_name, "")))])
    error_message = "pod_identity_associations: cluster_name is required, and is the name of an EKS cluster: 1 to 100 letters, digits, - and _."
  }

  validation {
    condition     = alltrue([for pod in try(values(var.pod_identity_associations), []) : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", try(coalesce(pod.namespace), "chipwatch"))) && can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", try(coalesce(pod.service_account), "chipwatch")))])
    error_message = "pod_identity_associations: namespace and service_account are names of Kubernetes: small letters, digits and -, in that of an account also dots."
  }

  validation {
    condition     = length(distinct([for pod in try(values(var.pod_identity_associations), []) : join("/", [try(coalesce(pod.cluster_name), ""), try(coalesce(pod.namespace), "chipwatch"), try(coalesce(pod.service_account), "chipwatch")])])) == try(length(var.pod_identity_associations), 0)
    error_message = "pod_identity_associations: a service account of a cluster is listed twice; EKS takes one association of each."
  }
}

variable "irsa" {
  description = "The cluster's OpenID Connect provider, and the service accounts (\"namespace:name\") that get the role."
  type = object({
    oidc_provider_arn = optional(string)
    service_accounts  = optional(list(string), ["chipwatch:chipwatch"])
  })
  default  = {}
  nullable = false

  validation {
    condition     = try(var.irsa.oidc_provider_arn, null) == null || can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:oidc-provider/[!-~]+$", var.irsa.oidc_provider_arn))
    error_message = "irsa: oidc_provider_arn is an ARN, as in arn:aws:iam::123456789012:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/EXAMPLE."
  }

  validation {
    condition     = alltrue([for account in try([for account in var.irsa.service_accounts : account], []) : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", account))])
    error_message = "irsa: service_accounts are \"namespace:name\", without wildcards."
  }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50 && alltrue([for key, value in var.tags : can(regex("^[^[:cntrl:]]{1,128}$", key)) && !startswith(lower(key), "aws:") && try(length(value) <= 256, false)])
    error_message = "tags: at most 50; a key has 1 to 128 characters and does not begin with aws:, a value has at most 256."
  }
}
