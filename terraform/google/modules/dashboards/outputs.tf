output "id" {
  description = "Id of the dashboard; null if it is not created."
  value       = try(google_monitoring_dashboard.this[0].id, null)
}

output "json" {
  description = "The dashboard itself."
  value       = jsonencode(local.dashboard)
}
