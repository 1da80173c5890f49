output "pod_identity_role_arn" {
  description = "ARN of the role; the chart needs no annotation for it."
  value       = module.iam.pod_identity_role_arn
}

output "irsa_role_arn" {
  description = "For the chart without Pod Identity: the service account's annotation eks.amazonaws.com/role-arn."
  value       = module.iam.irsa_role_arn
}
