output "instance_profile_arn" {
  description = "ARN of the instance profile; null without ec2."
  value       = module.iam.instance_profile_arn
}

output "ec2_role_name" {
  description = "Name of the instances' role, to attach more to; null without ec2."
  value       = module.iam.ec2_role_name
}

output "launch_template_id" {
  description = "Id of the launch template; null without ec2."
  value       = one(module.ec2[*].launch_template_id)
}

output "launch_template_version" {
  description = "Latest version of the launch template; null without ec2."
  value       = one(module.ec2[*].launch_template_version)
}

output "user_data" {
  description = "The script that installs the agent, for a launch template of your own; null without ec2."
  value       = one(module.ec2[*].user_data)
}

output "ecs_task_role_arn" {
  description = "ARN of the role for ECS tasks; null without ecs."
  value       = module.iam.ecs_task_role_arn
}

output "ecs_execution_role_arn" {
  description = "ARN of the role that starts ECS tasks; null without ecs."
  value       = one(module.ecs[*].execution_role_arn)
}

output "sidecar_container_definition" {
  description = "The agent's container, to put into a task definition of yours; null without ecs."
  value       = one(module.ecs[*].sidecar_container_definition)
}

output "sidecar_volume" {
  description = "The volume that the sidecar needs; null without ecs."
  value       = one(module.ecs[*].sidecar_volume)
}

output "sidecar_pid_mode" {
  description = "pid_mode of the sidecar's task; null without ecs, and where none is needed."
  value       = one(module.ecs[*].sidecar_pid_mode)
}

output "pod_identity_role_arn" {
  description = "ARN of the role for Pod Identity; null without associations."
  value       = module.iam.pod_identity_role_arn
}

output "irsa_role_arn" {
  description = "ARN of the role for service accounts; null without irsa."
  value       = module.iam.irsa_role_arn
}

output "dashboard_name" {
  description = "Name of the dashboard; null if it is not created."
  value       = module.dashboards.dashboard_name
}

output "alarm_arns" {
  description = "ARNs of the alarms, by name."
  value       = module.alarms.alarm_arns
}
