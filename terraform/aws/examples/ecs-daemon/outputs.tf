output "dashboard_name" {
  description = "Name of the dashboard."
  value       = module.chipwatch.dashboard_name
}
