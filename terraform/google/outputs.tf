output "service_account_email" {
  description = "Address of the machines' service account; null if there is none."
  value       = module.service_account.email
}

output "service_account_annotations" {
  description = "Annotations of the Kubernetes service accounts of workload_identity."
  value       = module.service_account.annotations
}

output "instance_template_id" {
  description = "Id of the instance template; null without one."
  value       = one(module.instance_template[*].id)
}

output "instance_template_self_link_unique" {
  description = "Link of the instance template as it is now, for groups; null without one."
  value       = one(module.instance_template[*].self_link_unique)
}

output "os_policy_ids" {
  description = "Ids of the assignments of the OS policy, by zone; null without one."
  value       = one(module.os_policy[*].ids)
}

output "dashboard_id" {
  description = "Id of the dashboard; null if it is not created."
  value       = module.dashboards.id
}

output "alert_policy_names" {
  description = "Full names of the alert policies, by alarm."
  value       = module.alert_policies.names
}
