output "service_account_email" {
  description = "The service account; null where pods have the role themselves."
  value       = module.service_account.email
}

output "helm_values" {
  description = "Values for the chart."
  value       = yamlencode(local.helm_values)
}
