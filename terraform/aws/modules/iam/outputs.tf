output "ec2_role_arn" {
  description = "ARN of the instances' role; null if it is not created."
  value       = try(aws_iam_role.this["ec2"].arn, null)
}

output "ec2_role_name" {
  description = "Name of the instances' role, to attach more to; null if it is not created."
  value       = try(aws_iam_role.this["ec2"].name, null)
}

output "instance_profile_arn" {
  description = "ARN of the instance profile; null if it is not created."
  value       = try(aws_iam_instance_profile.this[0].arn, null)
}

output "instance_profile_name" {
  description = "Name of the instance profile; null if it is not created."
  value       = try(aws_iam_instance_profile.this[0].name, null)
}

output "ecs_task_role_arn" {
  description = "ARN of the role for ECS tasks; null if it is not created."
  value       = try(aws_iam_role.this["ecs-task"].arn, null)
}

output "ecs_task_role_name" {
  description = "Name of the role for ECS tasks, to attach what the training needs to; null if it is not created."
  value       = try(aws_iam_role.this["ecs-task"].name, null)
}

output "pod_identity_role_arn" {
  description = "ARN of the role for Pod Identity; null if it is not created."
  value       = try(aws_iam_role.this["pod-identity"].arn, null)
}

output "pod_identity_association_ids" {
  description = "Ids of the associations, by your names."
  value       = { for name, association in aws_eks_pod_identity_association.this : name => association.association_id }
}

output "irsa_role_arn" {
  description = "ARN of the role for service accounts, for the annotation eks.amazonaws.com/role-arn; null if it is not created."
  value       = try(aws_iam_role.this["irsa"].arn, null)
}

output "policy_json" {
  description = "The policy itself, to attach to a role that you have."
  value       = data.aws_iam_policy_document.send.json
}
