# The alert policies that `chipwatch dashboard --cloud google --alarms` prints, with what is to be otherwise.

locals {
  # `all` sends no more that one would be woken up for.
  level = var.level == "all" ? "detailed" : var.level

  # Silence is that of the first family.
  order = [for family in ["fabric", "health", "tpu", "neuron", "gpu", "host"] : family if contains(var.families, family)]

  # By resource type, the policies by alarm.
  generated = {
    for resource in var.resource_types : resource => merge([
      for family in local.order : {
        for policy in jsondecode(templatefile("${path.module}/generated/${local.level}/${family}.json.tftpl", {
          prefix        = var.name
          runbooks      = var.runbooks
          metric_prefix = var.metric_prefix
          resource      = resource
        })) : trimprefix(policy.displayName, "${var.name}-") => policy
      }
    ]...)
  }

  # The policies of the first type, with the conditions of all types.
  policies = {
    for alarm, policy in local.generated[var.resource_types[0]] : alarm => merge(policy, {
      conditions = flatten([for resource in var.resource_types : local.generated[resource][alarm].conditions])
      otherwise  = merge(local.as_usual, try(var.alarms[alarm], {}))
    })
  }

  # Google takes no policy about a metric that it does not know, so these are made first, as the agent would by writing.
  metrics = merge([for family in local.order : jsondecode(file("${path.module}/generated/${local.level}/${family}-metrics.json"))]...)

  as_usual = { create = null, enabled = null, threshold = null, minutes = null, severity = null, notification_channels = null }
}

resource "google_monitoring_metric_descriptor" "this" {
  for_each = { for name, metric in local.metrics : name => metric if var.create && var.create_metrics }

  project      = var.project_id
  type         = "${var.metric_prefix}${each.key}"
  display_name = "${var.metric_prefix}${each.key}"
  description  = each.value.description
  metric_kind  = each.value.kind
  value_type   = "DOUBLE"
  unit         = each.value.unit

  dynamic "labels" {
    for_each = each.value.labels

    content {
      key        = labels.value
      value_type = "STRING"
    }
  }

  # The agents may have added labels by writing.
  lifecycle {
    ignore_changes = [labels, description, unit, display_name]
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each = { for alarm, policy in local.policies : alarm => policy if var.create && coalesce(policy.otherwise.create, true) }

  project               = var.project_id
  display_name          = each.value.displayName
  combiner              = each.value.combiner
  enabled               = coalesce(each.value.otherwise.enabled, var.enabled)
  severity              = coalesce(each.value.otherwise.severity, each.value.severity)
  notification_channels = each.value.otherwise.notification_channels == null ? var.notification_channels : each.value.otherwise.notification_channels
  user_labels           = merge(var.labels, each.value.userLabels)

  documentation {
    content   = each.value.documentation.content
    mime_type = each.value.documentation.mimeType
  }

  alert_strategy {
    auto_close = coalesce(var.auto_close, each.value.alertStrategy.autoClose)
  }

  dynamic "conditions" {
    for_each = each.value.conditions

    content {
      display_name = conditions.value.displayName

      dynamic "condition_threshold" {
        for_each = try([conditions.value.conditionThreshold], [])

        content {
          filter          = condition_threshold.value.filter
          comparison      = condition_threshold.value.comparison
          threshold_value = each.value.otherwise.threshold == null ? condition_threshold.value.thresholdValue : each.value.otherwise.threshold
          duration        = each.value.otherwise.minutes == null ? condition_threshold.value.duration : "${each.value.otherwise.minutes * 60}s"

          trigger {
            count = condition_threshold.value.trigger.count
          }

          dynamic "aggregations" {
            for_each = condition_threshold.value.aggregations

            content {
              alignment_period     = aggregations.value.alignmentPeriod
              per_series_aligner   = aggregations.value.perSeriesAligner
              cross_series_reducer = try(aggregations.value.crossSeriesReducer, null)
            }
          }
        }
      }

      dynamic "condition_absent" {
        for_each = try([conditions.value.conditionAbsent], [])

        content {
          filter   = condition_absent.value.filter
          duration = each.value.otherwise.minutes == null ? condition_absent.value.duration : "${each.value.otherwise.minutes * 60}s"

          trigger {
            count = condition_absent.value.trigger.count
          }

          dynamic "aggregations" {
            for_each = condition_absent.value.aggregations

            content {
              alignment_period     = aggregations.value.alignmentPeriod
              per_series_aligner   = aggregations.value.perSeriesAligner
              cross_series_reducer = try(aggregations.value.crossSeriesReducer, null)
            }
          }
        }
      }
    }
  }

  depends_on = [google_monitoring_metric_descriptor.this]
}
