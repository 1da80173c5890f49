output "os_policy_ids" {
  description = "Ids of the assignments, by zone."
  value       = module.os_policy.ids
}
