output "dashboard_name" {
  description = "Name of the dashboard."
  value       = module.dashboards.dashboard_name
}

output "alarm_arns" {
  description = "ARNs of the alarms, by name."
  value       = module.alarms.alarm_arns
}
