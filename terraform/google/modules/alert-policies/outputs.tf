output "names" {
  description = "Full names of the policies, by alarm."
  value       = { for alarm, policy in google_monitoring_alert_policy.this : alarm => policy.name }
}
