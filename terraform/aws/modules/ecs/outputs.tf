output "sidecar_container_definition" {
  description = "The agent's container, to put into the containers of your task definition before jsonencode."
  value       = local.sidecar

  precondition {
    condition     = length(local.given_twice) == 0
    error_message = "secrets: the environment has these too, as the module or you set them: ${join(", ", local.given_twice)}"
  }

  precondition {
    condition     = var.create_daemon || var.sidecar_launch_type != "FARGATE" || var.accelerator == "none"
    error_message = "accelerator: Fargate has none; set it to none, or sidecar_launch_type to EC2."
  }
}

output "sidecar_container_definition_json" {
  description = "The same as JSON."
  value       = jsonencode(local.sidecar)
}

output "sidecar_volume" {
  description = "The volume that the sidecar needs: its name, and on EC2 its docker_volume_configuration."
  value = {
    name                        = "spool"
    docker_volume_configuration = var.sidecar_launch_type == "EC2" ? { scope = "task", driver = "local" } : null
  }
}

output "sidecar_pid_mode" {
  description = "pid_mode of the sidecar's task: \"task\" lets neuron-monitor see the training's processes; else null."
  value       = local.sidecar_pid_mode
}

output "execution_role_arn" {
  description = "Role that starts tasks with the agent in them."
  value       = local.execution_role_arn

  precondition {
    condition     = var.execution_role_arn == null || !var.create_execution_role
    error_message = "execution_role_arn: a role is created, and this one would not be used; set create_execution_role to false, or leave this out."
  }
}

output "daemon_task_definition_arn" {
  description = "ARN of the daemon's task definition, with its revision; null if it is not created."
  value       = one(aws_ecs_task_definition.daemon[*].arn)
}

output "daemon_service_name" {
  description = "Name of the daemon's service; null if it is not created."
  value       = one(aws_ecs_service.daemon[*].name)
}

output "daemon_container_definitions_json" {
  description = "The daemon's containers as JSON."
  value       = jsonencode([local.daemon])
}

output "log_group_name" {
  description = "Log group of the agent."
  value       = var.log_group_name
}
