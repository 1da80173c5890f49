output "ids" {
  description = "Ids of the assignments, by zone."
  value       = { for zone, assignment in google_os_config_os_policy_assignment.this : zone => assignment.id }
}

output "revision_ids" {
  description = "Ids of the assignments' present revisions, by zone."
  value       = { for zone, assignment in google_os_config_os_policy_assignment.this : zone => assignment.revision_id }
}

output "validate_script" {
  description = "The script that checks a machine's state."
  value       = local.validate
}

output "enforce_script" {
  description = "The script that makes it so."
  value       = local.enforce
}
