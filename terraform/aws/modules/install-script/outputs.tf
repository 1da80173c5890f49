output "script" {
  description = "The script, for sh and root: to be used as it is, or by modules/ssm."
  value       = local.script
}

output "base64gzip" {
  description = "The same packed, as user-data: EC2 takes 16 KiB."
  value       = base64gzip(local.script)
}

output "sha256" {
  description = "SHA-256 of the script; it changes with the version and the configuration."
  value       = sha256(local.script)
}

output "uninstall_script" {
  description = "The script that takes the agent off again, and leaves nothing."
  value       = file("${local.files}/uninstall.sh")
}
