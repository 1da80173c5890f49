output "id" {
  description = "Id of the template; null if it is not created."
  value       = try(google_compute_instance_template.this[0].id, null)
}

output "name" {
  description = "Name of the template; null if it is not created."
  value       = try(google_compute_instance_template.this[0].name, null)
}

output "self_link_unique" {
  description = "Link of the template as it is now, for groups; null if it is not created."
  value       = try(google_compute_instance_template.this[0].self_link_unique, null)
}

output "startup_script" {
  description = "The start-up script."
  value       = module.script.script
}
