output "script" {
  description = "The script, for bash and root: to be used as it is, or within a start-up script of your own."
  value       = local.script
}

output "sha256" {
  description = "SHA-256 of the script; it changes with the version and the configuration."
  value       = sha256(local.script)
}

output "uninstall_script" {
  description = "The script that takes the agent off again, and leaves nothing."
  value       = file("${local.files}/uninstall.sh")
}

output "agent" {
  description = "The settings of the agent, with defaults."
  value       = var.agent
}
