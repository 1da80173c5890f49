# The alarms that `chipwatch dashboard --cloud cloudwatch --alarms` prints. Each is on a query over all machines, and machines
# that come later are in it by themselves. Each series of the answer has a separate state; silence has one for all.

locals {
  by_runtime = contains(var.dimensions, "neuron_runtime_tag")
  # A dimension of points and not of machines: the templates have it where it belongs.
  machine = [for word in concat(var.dimensions, tolist(var.own_dimensions)) : word if word != "neuron_runtime_tag"]
  level   = var.level == "all" ? "detailed" : var.level

  # Every family has a sign that machines send at all; the last one here has its way.
  order = [for family in ["fabric", "health", "neuron", "gpu", "host"] : family if contains(var.families, family)]

  # Machines are counted by what they send of the host, whatever the alarms are about.
  counts = var.hosts > 0 || length(var.autoscaling_groups) > 0

  generated = merge([
    for family in distinct(concat(local.order, ["host"])) : {
      for alarm in jsondecode(templatefile("${path.module}/generated/${local.level}/${family == "neuron" && local.by_runtime ? "neuron-by-runtime" : family}.json.tftpl", {
        namespace = var.namespace
        prefix    = "prefix"
        runbooks  = var.runbooks
        dims      = join(", ", [for word in local.machine : "\\\"${word}\\\""])
      })) : trimprefix(alarm.AlarmName, "prefix-") => alarm
      if contains(local.order, family) || alarm.AlarmName == "prefix-agent-silent"
    }
  ]...)

  # What the user-data sends where it could not install the agent; nothing else would speak of that machine.
  install_failed = !var.user_data ? {} : {
    install-failed = {
      AlarmDescription   = "A machine could not install the agent, after several attempts. /var/log/cloud-init-output.log on it says why; agent-silent stays in ALARM until it sends."
      ComparisonOperator = "GreaterThanThreshold"
      Threshold          = 0
      EvaluationPeriods  = 1
      DatapointsToAlarm  = 1
      TreatMissingData   = "notBreaching"
      Metrics            = [{ Id = "q1", Expression = "SELECT SUM(\"agent.install.failed\") FROM \"${var.namespace}\"", Period = 300, ReturnData = true }]
    }
  }

  alarms = {
    for key, alarm in merge(local.generated, local.install_failed) : key => merge(alarm, { with = merge(local.nothing, try(var.alarms[key], {})) })
    if var.create && try(var.alarms[key].create, true) && (key != "agent-silent" || local.counts)
  }

  nothing = {
    create                    = true
    threshold                 = null
    evaluation_periods        = null
    datapoints_to_alarm       = null
    treat_missing_data        = null
    actions_enabled           = null
    alarm_actions             = null
    ok_actions                = null
    insufficient_data_actions = null
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  region                    = var.region
  alarm_name                = "${var.name}-${each.key}"
  alarm_description         = each.value.AlarmDescription
  comparison_operator       = each.value.ComparisonOperator
  threshold                 = each.value.with.threshold == null ? each.value.Threshold * (each.key == "agent-silent" ? 2 * var.hosts - 1 : 1) : each.value.with.threshold
  evaluation_periods        = coalesce(each.value.with.evaluation_periods, each.value.EvaluationPeriods)
  datapoints_to_alarm       = coalesce(each.value.with.datapoints_to_alarm, min(each.value.DatapointsToAlarm, coalesce(each.value.with.evaluation_periods, each.value.EvaluationPeriods)))
  treat_missing_data        = coalesce(each.value.with.treat_missing_data, each.value.TreatMissingData)
  actions_enabled           = each.value.with.actions_enabled == null ? var.actions_enabled : each.value.with.actions_enabled
  alarm_actions             = each.value.with.alarm_actions == null ? var.alarm_actions : each.value.with.alarm_actions
  ok_actions                = each.value.with.ok_actions == null ? var.ok_actions : each.value.with.ok_actions
  insufficient_data_actions = each.value.with.insufficient_data_actions == null ? var.insufficient_data_actions : each.value.with.insufficient_data_actions
  tags                      = var.tags

  dynamic "metric_query" {
    for_each = each.value.Metrics

    content {
      id          = metric_query.value.Id
      expression  = metric_query.value.Expression
      period      = metric_query.value.Period
      return_data = each.key != "agent-silent" || length(var.autoscaling_groups) == 0
    }
  }

  # The generated threshold of agent-silent is half of what one machine sends in a period.
  dynamic "metric_query" {
    for_each = each.key == "agent-silent" ? var.autoscaling_groups : []

    content {
      id          = "m${metric_query.key + 1}"
      return_data = false

      metric {
        namespace   = "AWS/AutoScaling"
        metric_name = "GroupInServiceInstances"
        dimensions  = { AutoScalingGroupName = metric_query.value }
        period      = each.value.Metrics[0].Period
        stat        = "Minimum"
      }
    }
  }

  dynamic "metric_query" {
    for_each = each.key == "agent-silent" && length(var.autoscaling_groups) > 0 ? ["e1"] : []

    content {
      id          = metric_query.value
      expression  = "q1 - ${2 * each.value.Threshold} * (${join(" + ", [for number in range(length(var.autoscaling_groups)) : "m${number + 1}"])})"
      return_data = true
    }
  }

  lifecycle {
    precondition {
      condition     = coalesce(each.value.with.datapoints_to_alarm, 1) <= coalesce(each.value.with.evaluation_periods, each.value.EvaluationPeriods)
      error_message = "alarms: ${each.key}: datapoints_to_alarm may not be more than evaluation_periods."
    }

    precondition {
      condition     = coalesce(each.value.with.evaluation_periods, each.value.EvaluationPeriods) * each.value.Metrics[0].Period <= 10800
      error_message = "alarms: ${each.key}: an alarm on a query looks back three hours at most; evaluation_periods of ${each.value.Metrics[0].Period} s are too many."
    }
  }
}
