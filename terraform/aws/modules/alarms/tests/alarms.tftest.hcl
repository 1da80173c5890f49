mock_provider "aws" {}

run "all_families" {
  command = plan

  variables {
    hosts         = 3
    level         = "detailed"
    alarm_actions = ["arn:aws:sns:us-east-1:123456789012:pager"]
  }

  assert {
    condition = length(setsubtract(
      ["agent-silent", "gpu-ecc-uncorrected", "gpu-idle", "gpu-lost", "gpu-memory-full", "gpu-throttled", "gpu-xid", "memory-full", "neuron-core-busy"],
      keys(aws_cloudwatch_metric_alarm.this)
    )) == 0
    error_message = "What may happen to a fleet has its alarm."
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.alarm_actions == toset(["arn:aws:sns:us-east-1:123456789012:pager"])])
    error_message = "All alarms tell the topic."
  }

  assert {
    condition     = strcontains(tolist(aws_cloudwatch_metric_alarm.this["fleet-silent"].metric_query)[0].expression, "cpu.utilization")
    error_message = "With the host's metrics, these detect silence."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["agent-silent"].threshold == 2.5 && aws_cloudwatch_metric_alarm.this["agent-silent"].treat_missing_data == "breaching"
    error_message = "Of three machines, two are too few, and so is none."
  }
}

run "by_runtime" {
  command = plan

  variables {
    families           = ["neuron"]
    dimensions         = ["instance_id", "neuron_runtime_tag"]
    autoscaling_groups = ["train", "serve"]
  }

  assert {
    condition     = strcontains(tolist(aws_cloudwatch_metric_alarm.this["neuron-core-busy"].metric_query)[0].expression, "GROUP BY \"instance_id\" ORDER BY")
    error_message = "Each machine has its own state."
  }

  assert {
    condition     = alltrue([for query in aws_cloudwatch_metric_alarm.this["agent-silent"].metric_query : !strcontains(coalesce(query.expression, "-"), "neuron_runtime_tag")])
    error_message = "A machine is silent, not a runtime."
  }

  assert {
    condition     = [for query in aws_cloudwatch_metric_alarm.this["agent-silent"].metric_query : query.expression if query.return_data] == ["q1 - 1 * (m1 + m2)"] && aws_cloudwatch_metric_alarm.this["agent-silent"].threshold == -0.5
    error_message = "The expected number is that of the groups' instances in service."
  }
}

run "otherwise" {
  command = plan

  variables {
    name     = "prod"
    families = ["gpu"]
    alarms = {
      gpu-idle = { threshold = 0, evaluation_periods = 6, datapoints_to_alarm = 3, actions_enabled = false, treat_missing_data = "ignore" }
      gpu-xid  = { create = false }
    }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["gpu-idle"].alarm_name == "prod-gpu-idle" && aws_cloudwatch_metric_alarm.this["gpu-idle"].threshold == 0
    error_message = "Zero is a threshold too."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["gpu-idle"].actions_enabled == false && aws_cloudwatch_metric_alarm.this["gpu-idle"].treat_missing_data == "ignore"
    error_message = "An alarm has its settings."
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.this), "gpu-xid") && !contains(keys(aws_cloudwatch_metric_alarm.this), "memory-full")
    error_message = "Parts that are switched off do not exist."
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.this), "agent-silent")
    error_message = "Without an expected number there is nothing to compare with."
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.this), "gpu-throttled")
    error_message = "At the level basic its metric is not sent."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.this) == 0
    error_message = "create = false creates nothing."
  }
}

run "refuses_more_points_than_periods" {
  command = plan

  variables {
    alarms = { gpu-lost = { datapoints_to_alarm = 3 } }
  }

  expect_failures = [aws_cloudwatch_metric_alarm.this["gpu-lost"]]
}

run "refuses_to_look_back_more_than_three_hours" {
  command = plan

  variables {
    alarms = { gpu-idle = { evaluation_periods = 37 } }
  }

  expect_failures = [aws_cloudwatch_metric_alarm.this["gpu-idle"]]
}
