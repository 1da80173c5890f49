output "email" {
  description = "Address of the service account; null if there is none."
  value       = local.email
}

output "member" {
  description = "The service account as a member of policies, to give it what the training needs; null if there is none."
  value       = local.create || var.email != null ? local.member : null
}

output "name" {
  description = "Full name of the service account; null if there is none."
  value       = local.id
}

output "annotations" {
  description = "Annotations of the Kubernetes service accounts of workload_identity: serviceAccount.annotations of the chart."
  value       = length(var.workload_identity) > 0 && (local.create || var.email != null) ? { "iam.gke.io/gcp-service-account" = local.email } : {}
}
