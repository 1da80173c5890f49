# The least that the agent needs, for each place where it runs: to send into one namespace.

data "aws_partition" "current" {}
data "aws_region" "current" {}
data "aws_caller_identity" "current" {}

locals {
  account = data.aws_caller_identity.current.account_id
  issuer  = try(regex("oidc-provider/(.+)$", var.irsa.oidc_provider_arn)[0], "")

  s3 = "arn:${data.aws_partition.current.partition}:s3:::"

  # Each a bucket and a prefix.
  wheelhouses = [for wheels in var.wheelhouses : regex("^s3://([^/]+)/(.+?)/?$", wheels)]

  roles = var.create ? {
    for kind, role in {
      ec2 = {
        create      = var.create_ec2
        trust       = data.aws_iam_policy_document.ec2_trust.json
        description = "Instances that run chipwatch"
      }
      ecs-task = {
        create      = var.create_ecs_task
        trust       = data.aws_iam_policy_document.ecs_task_trust.json
        description = "ECS tasks in which chipwatch runs"
      }
      pod-identity = {
        create      = var.create_pod_identity
        trust       = data.aws_iam_policy_document.pod_identity_trust.json
        description = "Pods of chipwatch, by EKS Pod Identity"
      }
      irsa = {
        create      = var.create_irsa
        trust       = data.aws_iam_policy_document.irsa_trust.json
        description = "Pods of chipwatch, by the cluster's OpenID Connect provider"
      }
    } : kind => role if role.create
  } : {}
}

# -- what a role may do ------------------------------------------------------------------------------------------

data "aws_iam_policy_document" "send" {
  statement {
    sid       = "SendMetrics"
    actions   = ["cloudwatch:PutMetricData"]
    resources = ["*"] # the action knows no resources

    condition {
      test     = "StringEquals"
      variable = "cloudwatch:namespace"
      values   = [var.namespace]
    }
  }

  # The name of the group is a tag of the instance; the action knows no resources either.
  dynamic "statement" {
    for_each = contains(var.dimensions, "autoscaling_group") ? [1] : []

    content {
      sid       = "FindAutoScalingGroup"
      actions   = ["ec2:DescribeTags"]
      resources = ["*"]
    }
  }
}

data "aws_iam_policy_document" "install" {
  statement {
    sid     = "ReadFiles"
    actions = ["s3:GetObject"]
    resources = concat(
      [for wheels in local.wheelhouses : "${local.s3}${wheels[0]}/${wheels[1]}/*"],
      [for object in var.s3_objects : "${local.s3}${trimprefix(object, "s3://")}"],
    )
  }

  dynamic "statement" {
    for_each = length(local.wheelhouses) == 0 ? [] : [1]

    content {
      sid       = "ListWheels"
      actions   = ["s3:ListBucket"]
      resources = distinct([for wheels in local.wheelhouses : "${local.s3}${wheels[0]}"])

      condition {
        test     = "StringLike"
        variable = "s3:prefix"
        values   = flatten([for wheels in local.wheelhouses : [wheels[1], "${wheels[1]}/*"]])
      }
    }
  }
}

# -- who may be one ----------------------------------------------------------------------------------------------

data "aws_iam_policy_document" "ec2_trust" {
  statement {
    sid     = "Instances"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

data "aws_iam_policy_document" "ecs_task_trust" {
  statement {
    sid     = "EcsTasks"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }

    condition {
      test     = "ArnLike"
      variable = "aws:SourceArn"
      values   = ["arn:${data.aws_partition.current.partition}:ecs:${coalesce(var.region, data.aws_region.current.region)}:${local.account}:*"]
    }
  }
}

data "aws_iam_policy_document" "pod_identity_trust" {
  statement {
    sid     = "Pods"
    actions = ["sts:AssumeRole", "sts:TagSession"]

    principals {
      type        = "Service"
      identifiers = ["pods.eks.amazonaws.com"]
    }

    # The tags that EKS gives a pod's session say who it is.
    dynamic "condition" {
      for_each = length(var.pod_identity_associations) == 0 ? {} : {
        eks-cluster-name           = sort(distinct([for pod in var.pod_identity_associations : pod.cluster_name]))
        kubernetes-namespace       = sort(distinct([for pod in var.pod_identity_associations : pod.namespace]))
        kubernetes-service-account = sort(distinct([for pod in var.pod_identity_associations : pod.service_account]))
      }

      content {
        test     = "StringEquals"
        variable = "aws:RequestTag/${condition.key}"
        values   = condition.value
      }
    }
  }
}

data "aws_iam_policy_document" "irsa_trust" {
  statement {
    sid     = "Pods"
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = [coalesce(var.irsa.oidc_provider_arn, "none")]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = [for account in var.irsa.service_accounts : "system:serviceaccount:${account}"]
    }
  }
}

# -- the roles ---------------------------------------------------------------------------------------------------

resource "aws_iam_role" "this" {
  for_each = local.roles

  name                 = var.use_name_prefix ? null : "${var.name}-${each.key}"
  name_prefix          = var.use_name_prefix ? "${var.name}-${each.key}-" : null
  path                 = var.path
  description          = each.value.description
  assume_role_policy   = each.value.trust
  permissions_boundary = var.permissions_boundary
  tags                 = var.tags

  lifecycle {
    precondition {
      condition     = each.key != "irsa" || (var.irsa.oidc_provider_arn != null && length(var.irsa.service_accounts) > 0)
      error_message = "irsa: create_irsa needs irsa.oidc_provider_arn and at least one of irsa.service_accounts (\"namespace:name\")."
    }

    precondition {
      condition     = each.key != "pod-identity" || length(var.pod_identity_associations) > 0
      error_message = "pod_identity_associations: create_pod_identity needs at least one, or any pod of the account could have the role."
    }
  }
}

resource "aws_iam_role_policy" "send" {
  for_each = local.roles

  name   = "send"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.send.json
}

resource "aws_iam_role_policy" "install" {
  count = contains(keys(local.roles), "ec2") && length(concat(var.wheelhouses, var.s3_objects)) > 0 ? 1 : 0

  name   = "install"
  role   = aws_iam_role.this["ec2"].name
  policy = data.aws_iam_policy_document.install.json
}

resource "aws_iam_role_policy_attachment" "ec2" {
  for_each = contains(keys(local.roles), "ec2") ? var.ec2_policy_arns : {}

  role       = aws_iam_role.this["ec2"].name
  policy_arn = each.value
}

resource "aws_iam_instance_profile" "this" {
  count = contains(keys(local.roles), "ec2") ? 1 : 0

  name        = var.use_name_prefix ? null : "${var.name}-ec2"
  name_prefix = var.use_name_prefix ? "${var.name}-ec2-" : null
  path        = var.path
  role        = aws_iam_role.this["ec2"].name
  tags        = var.tags
}

resource "aws_eks_pod_identity_association" "this" {
  for_each = contains(keys(local.roles), "pod-identity") ? var.pod_identity_associations : {}

  region          = var.region
  cluster_name    = each.value.cluster_name
  namespace       = each.value.namespace
  service_account = each.value.service_account
  role_arn        = aws_iam_role.this["pod-identity"].arn
  tags            = var.tags
}
