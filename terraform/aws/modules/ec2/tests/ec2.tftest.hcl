mock_provider "aws" {}

variables {
  image_id             = "ami-0123456789abcdef0"
  instance_profile_arn = "arn:aws:iam::123456789012:instance-profile/chipwatch"
  agent_version        = "0.1.0"
  wheelhouse           = "s3://wheels/chipwatch/0.1.0"
}

run "hardened_by_itself" {
  command = plan

  assert {
    condition     = aws_launch_template.this[0].metadata_options[0].http_tokens == "required" && aws_launch_template.this[0].metadata_options[0].http_put_response_hop_limit == 1
    error_message = "IMDSv2 alone, and for the instance alone."
  }

  assert {
    condition     = strcontains(output.user_data, "\nversion=0.1.0\n") && strcontains(output.user_data, "\ncommon_dims=instance_id,instance_type\n")
    error_message = "The script gets the packages to install and the dimensions of the agent."
  }
}

run "as_it_is_told" {
  command = plan

  variables {
    name                        = "training"
    use_name_prefix             = false
    http_put_response_hop_limit = 2
    instance_metadata_tags      = false
    region                      = "eu-central-1"
    level                       = "all"
    config                      = "interval = 10.0"
    wheelhouse                  = null
    index_url                   = "https://pypi.example.com/simple"
    constraints                 = "s3://wheels/constraints.txt"
    wheel_sha256                = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    block_device_mappings       = { "/dev/xvda" = { volume_size = 200 } }
    tags                        = { team = "ml" }
  }

  assert {
    condition     = aws_launch_template.this[0].name == "training" && aws_launch_template.this[0].metadata_options[0].http_put_response_hop_limit == 2 && aws_launch_template.this[0].metadata_options[0].instance_metadata_tags == "disabled"
    error_message = "Name, hop limit and tags in the metadata are the given ones."
  }

  assert {
    condition     = aws_launch_template.this[0].block_device_mappings[0].ebs[0].encrypted == "true"
    error_message = "Volumes are encrypted by default."
  }

  assert {
    condition     = toset([for of in aws_launch_template.this[0].tag_specifications : of.tags["team"]]) == toset(["ml"])
    error_message = "Instances have the tags too."
  }
}

run "fast_network_and_reserved_capacity" {
  command = plan

  variables {
    instance_type          = "p5.48xlarge"
    vpc_security_group_ids = ["sg-0123456789abcdef0"]
    efa_interfaces         = 32
    placement_group        = "training"
    capacity_reservation   = { id = "cr-0123456789abcdef0", is_block = true }
  }

  assert {
    condition     = join(",", aws_launch_template.this[0].network_interfaces[*].network_card_index) == join(",", range(32)) && join(",", distinct(aws_launch_template.this[0].network_interfaces[*].interface_type)) == "efa,efa-only"
    error_message = "One card each, the first with IP."
  }

  assert {
    condition     = aws_launch_template.this[0].vpc_security_group_ids == null && alltrue([for of in aws_launch_template.this[0].network_interfaces : of.security_groups == toset(["sg-0123456789abcdef0"])])
    error_message = "The interfaces have the groups."
  }

  assert {
    condition     = aws_launch_template.this[0].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_id == "cr-0123456789abcdef0" && aws_launch_template.this[0].instance_market_options[0].market_type == "capacity-block" && aws_launch_template.this[0].placement[0].group_name == "training"
    error_message = "The block is the bought one."
  }
}

run "a_first_card_without_efa" {
  command = plan

  variables {
    instance_type          = "p6-b300.48xlarge"
    vpc_security_group_ids = ["sg-0123456789abcdef0"]
    efa_interfaces         = 16
  }

  assert {
    condition     = join(",", aws_launch_template.this[0].network_interfaces[*].network_card_index) == join(",", range(17)) && join(",", aws_launch_template.this[0].network_interfaces[*].interface_type) == join(",", concat(["interface"], [for card in range(16) : "efa-only"])) && sum(aws_launch_template.this[0].network_interfaces[*].device_index) == 0
    error_message = "The first card has the IP, the others EFA."
  }
}

run "refuses_efa_without_a_group" {
  command = plan

  variables {
    efa_interfaces = 1
  }

  expect_failures = [aws_launch_template.this]
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_launch_template.this) == 0
    error_message = "create = false creates nothing."
  }
}

run "refuses_more_than_ec2_takes" {
  command = plan

  variables {
    config = join("\n", [for n in range(400) : "# ${sha256(tostring(n))}"])
  }

  expect_failures = [aws_launch_template.this]
}

run "refuses_tags_with_which_nothing_is_launched" {
  command = plan

  variables {
    tags = { "team/name" = "ml" }
  }

  expect_failures = [aws_launch_template.this]
}
