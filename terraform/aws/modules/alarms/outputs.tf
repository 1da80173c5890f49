output "alarm_arns" {
  description = "ARNs of the alarms, by their names without what they begin with."
  value       = { for key, alarm in aws_cloudwatch_metric_alarm.this : key => alarm.arn }
}

output "alarm_names" {
  description = "Names of the alarms, by the same."
  value       = { for key, alarm in aws_cloudwatch_metric_alarm.this : key => alarm.alarm_name }
}
