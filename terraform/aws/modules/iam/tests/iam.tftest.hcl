mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws-cn", dns_suffix = "amazonaws.com.cn" }
  }

  mock_data "aws_region" {
    defaults = { region = "cn-north-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
}

variables {
  create_ec2          = true
  create_ecs_task     = true
  create_pod_identity = true
  create_irsa         = true

  pod_identity_associations = { daemon = { cluster_name = "train" } }
  irsa                      = { oidc_provider_arn = "arn:aws-cn:iam::123456789012:oidc-provider/oidc.eks.cn-north-1.amazonaws.com.cn/id/ABC" }
}

run "all_roles" {
  command = plan

  assert {
    condition     = toset(keys(aws_iam_role.this)) == toset(["ec2", "ecs-task", "pod-identity", "irsa"])
    error_message = "One role for each place."
  }

  assert {
    condition     = alltrue([for role in aws_iam_role.this : role.name_prefix != null])
    error_message = "By default AWS appends a unique suffix."
  }

  assert {
    condition     = length(aws_iam_role_policy.install) == 0
    error_message = "Without a wheelhouse on S3 nothing there may be read."
  }
}

run "names_as_they_are" {
  command = plan

  variables {
    use_name_prefix      = false
    path                 = "/monitoring/"
    permissions_boundary = "arn:aws-cn:iam::123456789012:policy/boundary"
    ec2_policy_arns      = { ssm = "arn:aws-cn:iam::aws:policy/AmazonSSMManagedInstanceCore" }
    wheelhouses          = ["s3://wheels/chipwatch/0.1.0/"]
    s3_objects           = ["s3://other/constraints.txt"]
    dimensions           = ["instance_id", "autoscaling_group"]
    tags                 = { team = "ml" }
  }

  assert {
    condition     = aws_iam_role.this["ec2"].name == "chipwatch-ec2" && aws_iam_instance_profile.this[0].name == "chipwatch-ec2"
    error_message = "The names are the given ones."
  }

  assert {
    condition     = alltrue([for role in aws_iam_role.this : role.path == "/monitoring/" && role.permissions_boundary == "arn:aws-cn:iam::123456789012:policy/boundary" && role.tags == tomap({ team = "ml" })])
    error_message = "Path, boundary and tags are every role's."
  }

  assert {
    condition     = data.aws_iam_policy_document.ec2_trust.statement[0].principals == toset([{ type = "Service", identifiers = toset(["ec2.amazonaws.com.cn"]) }])
    error_message = "The partition says what EC2 is called."
  }

  assert {
    condition     = toset(data.aws_iam_policy_document.install.statement[0].resources) == toset(["arn:aws-cn:s3:::wheels/chipwatch/0.1.0/*", "arn:aws-cn:s3:::other/constraints.txt"])
    error_message = "The instances read the wheelhouse and the file, and nothing else."
  }

  assert {
    condition     = [for statement in data.aws_iam_policy_document.send.statement : tolist(statement.actions)[0]] == ["cloudwatch:PutMetricData", "ec2:DescribeTags"]
    error_message = "The group takes ec2:DescribeTags."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_iam_role.this) + length(aws_iam_role_policy.send) + length(aws_iam_instance_profile.this) + length(aws_eks_pod_identity_association.this) == 0
    error_message = "create = false creates nothing."
  }
}

run "refuses_a_role_for_any_pod" {
  command = plan

  variables {
    pod_identity_associations = {}
  }

  expect_failures = [aws_iam_role.this]
}

run "refuses_a_role_for_any_cluster" {
  command = plan

  variables {
    irsa = {}
  }

  expect_failures = [aws_iam_role.this]
}
