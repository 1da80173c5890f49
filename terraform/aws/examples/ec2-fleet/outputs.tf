output "launch_template_id" {
  description = "Id of the launch template."
  value       = module.chipwatch.launch_template_id
}

output "dashboard_name" {
  description = "Name of the dashboard."
  value       = module.chipwatch.dashboard_name
}

output "association_id" {
  description = "Id of the association that updates the agent: its executions name the instances that failed."
  value       = module.ssm.association_id
}
