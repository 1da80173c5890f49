output "document_name" {
  description = "Name of the document, for Run Command on single machines; null if it is not created."
  value       = one(aws_ssm_document.this[*].name)
}

output "association_id" {
  description = "Id of the association, whose executions name the machines that failed; null if it is not created."
  value       = one(aws_ssm_association.this[*].association_id)
}
