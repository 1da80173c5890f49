output "instance_group" {
  description = "The group of machines."
  value       = google_compute_region_instance_group_manager.training.instance_group
}

output "service_account_email" {
  description = "Service account of the machines, to give it what the training needs."
  value       = module.chipwatch.service_account_email
}

output "dashboard_id" {
  description = "Id of the dashboard."
  value       = module.chipwatch.dashboard_id
}
