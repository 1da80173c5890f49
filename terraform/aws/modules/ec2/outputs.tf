output "launch_template_id" {
  description = "Id of the launch template; null if it is not created."
  value       = one(aws_launch_template.this[*].id)
}

output "launch_template_arn" {
  description = "ARN of the launch template; null if it is not created."
  value       = one(aws_launch_template.this[*].arn)
}

output "launch_template_name" {
  description = "Name of the launch template; null if it is not created."
  value       = one(aws_launch_template.this[*].name)
}

output "launch_template_version" {
  description = "Latest version of the launch template; null if it is not created."
  value       = one(aws_launch_template.this[*].latest_version)
}

output "user_data" {
  description = "The script, for a launch template of your own."
  value       = module.script.script
}

output "user_data_base64gzip" {
  description = "The same packed, as EC2 takes it."
  value       = module.script.base64gzip
}
