output "scraper_arn" {
  description = "ARN of the collector."
  value       = aws_prometheus_scraper.agents.arn
}

output "security_group_id" {
  description = "Security group of the collector, to let it in elsewhere."
  value       = aws_security_group.collector.id
}
