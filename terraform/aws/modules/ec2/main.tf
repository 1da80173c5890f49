# A launch template whose user-data installs the agent: for Auto Scaling groups, fleets and single instances.

module "script" {
  source = "../install-script"

  agent = {
    version      = var.agent_version
    extras       = var.extras
    sinks        = var.sinks
    namespace    = var.namespace
    region       = var.region
    dimensions   = var.dimensions
    level        = var.level
    config       = var.config
    wheelhouse   = var.wheelhouse
    sums_sha256  = var.sums_sha256
    index_url    = var.index_url
    constraints  = var.constraints
    wheel_sha256 = var.wheel_sha256
  }
}

locals {
  tags = merge({ Name = var.name }, var.tags)

  # p6-b300's cards 1 to 16 have EFA, card 0 has none: https://github.com/aws/aws-parallelcluster/issues/7143
  first_card_has_efa = !startswith(coalesce(var.instance_type, "unset"), "p6-b300.")
}

resource "aws_launch_template" "this" {
  count = var.create ? 1 : 0

  region                 = var.region
  name                   = var.use_name_prefix ? null : var.name
  name_prefix            = var.use_name_prefix ? "${var.name}-" : null
  description            = "Instances that run chipwatch ${var.agent_version}"
  update_default_version = true
  image_id               = var.image_id
  instance_type          = var.instance_type
  key_name               = var.key_name
  ebs_optimized          = var.ebs_optimized
  vpc_security_group_ids = var.efa_interfaces == 0 ? var.vpc_security_group_ids : null # EC2 takes them here or with the interfaces
  user_data              = module.script.base64gzip                                    # EC2 takes 16 KiB; cloud-init unpacks it
  tags                   = var.tags

  iam_instance_profile {
    arn = var.instance_profile_arn
  }

  # A separate card for each. The first card is the instance's network; it has EFA too, as a rule.
  dynamic "network_interfaces" {
    for_each = range(var.efa_interfaces == 0 || local.first_card_has_efa ? var.efa_interfaces : var.efa_interfaces + 1)

    content {
      interface_type        = network_interfaces.value > 0 ? "efa-only" : local.first_card_has_efa ? "efa" : "interface"
      device_index          = network_interfaces.value > 0 && local.first_card_has_efa ? 1 : 0
      network_card_index    = network_interfaces.value
      security_groups       = var.vpc_security_group_ids
      delete_on_termination = true
    }
  }

  dynamic "placement" {
    for_each = var.placement_group == null ? [] : [var.placement_group]

    content {
      group_name = placement.value
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = var.capacity_reservation == null ? [] : [var.capacity_reservation]

    content {
      capacity_reservation_target {
        capacity_reservation_id                 = capacity_reservation_specification.value.id
        capacity_reservation_resource_group_arn = capacity_reservation_specification.value.resource_group_arn
      }
    }
  }

  dynamic "instance_market_options" {
    for_each = try(var.capacity_reservation.is_block, false) ? ["capacity-block"] : []

    content {
      market_type = instance_market_options.value
    }
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = var.http_put_response_hop_limit
    instance_metadata_tags      = var.instance_metadata_tags ? "enabled" : "disabled"
  }

  monitoring {
    enabled = var.detailed_monitoring
  }

  dynamic "block_device_mappings" {
    for_each = var.block_device_mappings

    content {
      device_name = block_device_mappings.key

      ebs {
        delete_on_termination = block_device_mappings.value.delete_on_termination
        encrypted             = block_device_mappings.value.encrypted
        iops                  = block_device_mappings.value.iops
        kms_key_id            = block_device_mappings.value.kms_key_id
        throughput            = block_device_mappings.value.throughput
        volume_size           = block_device_mappings.value.volume_size
        volume_type           = block_device_mappings.value.volume_type
      }
    }
  }

  dynamic "tag_specifications" {
    for_each = ["instance", "volume", "network-interface"]

    content {
      resource_type = tag_specifications.value
      tags          = local.tags
    }
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = !var.instance_metadata_tags || alltrue([for key in keys(local.tags) : can(regex("^[A-Za-z0-9+=.,_:@-]+$", key)) && !contains([".", "..", "_index"], key)])
      error_message = "tags: EC2 launches nothing with these while the tags are in the metadata: keys are of letters, digits and +-=.,_:@ then. Change them, or set instance_metadata_tags to false."
    }

    precondition {
      condition     = var.efa_interfaces == 0 || length(var.vpc_security_group_ids) > 0
      error_message = "vpc_security_group_ids: EFA needs a group that allows all traffic among its members, in both directions."
    }

    precondition {
      condition     = length(module.script.base64gzip) <= 21848 # EC2 counts the 16 KiB before base64
      error_message = "config: EC2 takes 16 KiB of user-data, and this is too long even when it is packed."
    }
  }
}
