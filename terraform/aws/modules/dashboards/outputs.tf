output "dashboard_name" {
  description = "Name of the dashboard; null if it is not created."
  value       = one(aws_cloudwatch_dashboard.this[*].dashboard_name)
}

output "dashboard_arn" {
  description = "ARN of the dashboard; null if it is not created."
  value       = one(aws_cloudwatch_dashboard.this[*].dashboard_arn)
}

output "dashboard_body" {
  description = "The dashboard as JSON."
  value       = local.body
}
