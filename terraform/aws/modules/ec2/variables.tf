variable "create" {
  description = "Whether to create anything; the output user_data exists in either case."
  type        = bool
  default     = true
  nullable    = false
}

variable "name" {
  description = "Name of the launch template and of the instances."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9()./_-]{3,99}$", var.name))
    error_message = "name: 3 to 99 letters, digits and ()./_-"
  }
}

variable "use_name_prefix" {
  description = "Whether AWS appends something unique to the launch template's name."
  type        = bool
  default     = true
  nullable    = false
}

variable "region" {
  description = "Region of the launch template, and where metrics go; the provider's, and the instance's own, unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null || can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "image_id" {
  description = "AMI of Amazon Linux 2023, Ubuntu 22.04 or 24.04, or a Deep Learning AMI of these; or resolve:ssm:PARAMETER."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^(ami-([0-9a-f]{8}|[0-9a-f]{17})|resolve:ssm:/?[A-Za-z0-9_./:-]+)$", var.image_id))
    error_message = "image_id: an AMI, as in ami-0123456789abcdef0, or resolve:ssm: and the name of a parameter."
  }
}

variable "instance_type" {
  description = "Type of the instances; left to the fleet unless set."
  type        = string
  default     = null

  validation {
    condition     = var.instance_type == null || can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type: as in trn1.32xlarge."
  }
}

variable "instance_profile_arn" {
  description = "Instance profile that may send metrics: the one of the module iam."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:instance-profile/[!-~]+$", var.instance_profile_arn))
    error_message = "instance_profile_arn: the ARN of an instance profile, as in arn:aws:iam::123456789012:instance-profile/chipwatch."
  }
}

variable "key_name" {
  description = "Key pair for SSH; none unless set."
  type        = string
  default     = null

  validation {
    condition     = var.key_name == null || can(regex("^[!-~ ]{1,255}$", var.key_name))
    error_message = "key_name: the name of a key pair, 1 to 255 characters."
  }
}

variable "ebs_optimized" {
  description = "Whether the instances have dedicated bandwidth to their volumes; the type's own way unless set."
  type        = bool
  default     = null
}

variable "vpc_security_group_ids" {
  description = "Security groups. The agent needs HTTPS outwards to CloudWatch, directly or by a VPC endpoint, and nothing inwards."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for group in var.vpc_security_group_ids : can(regex("^sg-([0-9a-f]{8}|[0-9a-f]{17})$", group))])
    error_message = "vpc_security_group_ids: ids of security groups, as in sg-0123456789abcdef0."
  }

  validation {
    condition     = length(var.vpc_security_group_ids) <= 16 && length(distinct(var.vpc_security_group_ids)) == length(var.vpc_security_group_ids)
    error_message = "vpc_security_group_ids: at most 16, each once."
  }
}

variable "efa_interfaces" {
  description = "How many EFA interfaces, each on a separate network card: 32 for p5.48xlarge and p5e.48xlarge, 16 for p5en.48xlarge and p6-b300.48xlarge, 8 for p6-b200.48xlarge (not confirmed), 4 for p4d.24xlarge, 8 for trn1.32xlarge, 16 for trn1n.32xlarge and trn2.48xlarge. None unless set. `aws ec2 describe-instance-types --query InstanceTypes[].NetworkInfo` names the cards of others; of those only p6-b300 may have no EFA at its first card. An instance with several gets no public IP by itself."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = contains(range(0, 33), var.efa_interfaces)
    error_message = "efa_interfaces: a whole number from 0 to 32."
  }
}

variable "placement_group" {
  description = "Placement group of the instances; EFA is fastest in one of the strategy cluster."
  type        = string
  default     = null

  validation {
    condition     = var.placement_group == null || can(regex("^[!-~ ]{1,255}$", var.placement_group))
    error_message = "placement_group: its name, 1 to 255 characters."
  }
}

variable "capacity_reservation" {
  description = "Reserved capacity, by the id of a reservation or the ARN of a resource group of them; is_block for a Capacity Block for ML. Whatever is open and fits unless set."
  type = object({
    id                 = optional(string)
    resource_group_arn = optional(string)
    is_block           = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.capacity_reservation == null || (try(var.capacity_reservation.id, null) == null) != (try(var.capacity_reservation.resource_group_arn, null) == null)
    error_message = "capacity_reservation: id or resource_group_arn, one of the two."
  }

  validation {
    condition     = try(var.capacity_reservation.id, null) == null || can(regex("^cr-[0-9a-f]{8,17}$", var.capacity_reservation.id))
    error_message = "capacity_reservation: id is that of a reservation, as in cr-0123456789abcdef0."
  }

  validation {
    condition     = try(var.capacity_reservation.resource_group_arn, null) == null || can(regex("^arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[!-~]+$", var.capacity_reservation.resource_group_arn))
    error_message = "capacity_reservation: resource_group_arn is the ARN of a resource group."
  }
}

variable "http_put_response_hop_limit" {
  description = "How many hops answers of the metadata service go. 1 reaches the instance itself, which is enough for this agent; containers with a separate network need 2, and then reach the instance's role."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.http_put_response_hop_limit >= 1 && var.http_put_response_hop_limit <= 64 && floor(var.http_put_response_hop_limit) == var.http_put_response_hop_limit
    error_message = "http_put_response_hop_limit: a whole number from 1 to 64; 1 is for the instance itself, 2 for containers on it."
  }
}

variable "instance_metadata_tags" {
  description = "Whether the instance sees its own tags: with them autoscaling_group is known without ec2:DescribeTags. Keys of tags may then hold neither blanks nor slashes."
  type        = bool
  default     = true
  nullable    = false
}

variable "detailed_monitoring" {
  description = "Whether EC2's own metrics come every minute, at a price; the agent's do so without it."
  type        = bool
  default     = false
  nullable    = false
}

variable "block_device_mappings" {
  description = "Volumes, by device name: { \"/dev/xvda\" = { volume_size = 200 } }; the AMI's unless set."
  type = map(object({
    delete_on_termination = optional(bool, true)
    encrypted             = optional(bool, true)
    iops                  = optional(number)
    kms_key_id            = optional(string)
    throughput            = optional(number)
    volume_size           = optional(number)
    volume_type           = optional(string, "gp3")
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for device in try(keys(var.block_device_mappings), []) : can(regex("^/dev/[a-z0-9]+$", device))])
    error_message = "block_device_mappings: by device name, as in /dev/xvda."
  }

  validation {
    condition     = alltrue([for volume in try(values(var.block_device_mappings), []) : try(volume.volume_type, null) == null || can(regex("^(gp2|gp3|io1|io2|st1|sc1|standard)$", volume.volume_type))])
    error_message = "block_device_mappings: volume_type is gp3, gp2, io1, io2, st1, sc1 or standard."
  }

  validation {
    condition     = alltrue([for volume in try(values(var.block_device_mappings), []) : try(volume.volume_size, null) == null || try(volume.volume_size >= 1 && volume.volume_size <= 65536 && floor(volume.volume_size) == tonumber(volume.volume_size), false)])
    error_message = "block_device_mappings: volume_size is a whole number of GiB from 1 to 65536."
  }

  validation {
    condition     = alltrue([for volume in try(values(var.block_device_mappings), []) : try(volume.iops >= 100 && volume.iops <= 256000 && floor(volume.iops) == tonumber(volume.iops) && can(regex("^(gp3|io1|io2)$", try(coalesce(volume.volume_type), "gp3"))), try(volume.iops, null) == null && !can(regex("^io", volume.volume_type)))])
    error_message = "block_device_mappings: iops is a whole number from 100 to 256000; io1 and io2 need it, gp3 may have it, and other types have none."
  }

  validation {
    condition     = alltrue([for volume in try(values(var.block_device_mappings), []) : try(volume.throughput, null) == null || try(volume.throughput >= 125 && volume.throughput <= 2000 && floor(volume.throughput) == tonumber(volume.throughput) && try(coalesce(volume.volume_type), "gp3") == "gp3", false)])
    error_message = "block_device_mappings: throughput is a whole number of MiB/s from 125 to 2000, of gp3 alone."
  }

  validation {
    condition     = alltrue([for volume in try(values(var.block_device_mappings), []) : try(volume.kms_key_id, null) == null || (can(regex("^[!-~]+$", volume.kms_key_id)) && try(tobool(coalesce(volume.encrypted)), true))])
    error_message = "block_device_mappings: kms_key_id must be the id or ARN of a key; encrypted must then not be false."
  }
}

# -- the agent, as modules/install-script takes it ---------------------------------------------------------------

variable "agent_version" {
  description = "Version of chipwatch to install."
  type        = string
  nullable    = false
}

variable "extras" {
  description = "What is installed with it: cloudwatch, google, prometheus (for its web_config_file), tpu, all."
  type        = list(string)
  default     = ["cloudwatch"]
  nullable    = false
}

variable "sinks" {
  description = "Where the agent sends; with prometheus it is scraped where [sinks.prometheus] in config says, and only on the instance unless that has listen."
  type        = list(string)
  default     = ["cloudwatch"]
  nullable    = false
}

variable "namespace" {
  description = "CloudWatch namespace."
  type        = string
  default     = "Chipwatch"
  nullable    = false
}

variable "dimensions" {
  description = "The agent's common_dims; dashboards and alarms need the same."
  type        = list(string)
  default     = ["instance_id", "instance_type"]
  nullable    = false
}

variable "level" {
  description = "How much is sent: basic, detailed or all; every series costs."
  type        = string
  default     = "basic"
  nullable    = false
}

variable "config" {
  description = "Further TOML for the agent's configuration: keys first, then tables. No secrets: users who may describe the launch template can read it."
  type        = string
  default     = ""
  nullable    = false
}

variable "wheelhouse" {
  description = "Folder that is installed from without an index; required unless constraints and wheel_sha256 are given: s3://BUCKET/PREFIX, file:///PATH or /PATH, as `make dist` makes it. The instances' role must read it: wheelhouses of the module iam."
  type        = string
  default     = null
}

variable "sums_sha256" {
  description = "SHA-256 of the wheelhouse's file SHA256SUMS."
  type        = string
  default     = null
}

variable "index_url" {
  description = "Index of packages, with constraints; the one that pip is set up for unless set."
  type        = string
  default     = null
}

variable "constraints" {
  description = "Our requirements/constraints.txt, by s3://, https:// or /PATH: files from the index must then have its hashes. On S3 the instances' role must read it: s3_objects of the module iam."
  type        = string
  default     = null
}

variable "wheel_sha256" {
  description = "SHA-256 of chipwatch's own wheel, for constraints."
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags of the launch template and of the instances."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50 && alltrue([for key, value in var.tags : can(regex("^[^[:cntrl:]]{1,128}$", key)) && !startswith(lower(key), "aws:") && try(length(value) <= 256, false)])
    error_message = "tags: at most 50; a key has 1 to 128 characters and does not begin with aws:, a value has at most 256."
  }
}
