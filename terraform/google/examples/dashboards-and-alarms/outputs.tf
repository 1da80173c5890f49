output "dashboard_id" {
  description = "Id of the dashboard."
  value       = module.dashboards.id
}

output "alert_policy_names" {
  description = "Full names of the alert policies, by alarm."
  value       = module.alert_policies.names
}
