output "task_definition_arn" {
  description = "ARN of the training's task definition."
  value       = aws_ecs_task_definition.training.arn
}

output "task_role_name" {
  description = "Role of the task, to attach what the training needs to."
  value       = module.iam.ecs_task_role_name
}
