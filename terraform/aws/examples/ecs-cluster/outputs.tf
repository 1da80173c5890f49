output "cluster_name" {
  description = "Name of the cluster."
  value       = aws_ecs_cluster.this.name
}

output "dashboard_name" {
  description = "Name of the dashboard."
  value       = module.chipwatch.dashboard_name
}
