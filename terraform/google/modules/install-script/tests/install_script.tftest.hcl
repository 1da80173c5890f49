variables {
  agent = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "as_usual" {
  command = plan

  assert {
    condition     = strcontains(output.script, "\nversion=0.1.0\nextras=google\nsink=google\nnamespace=\nregion=\ncommon_dims=\nlevel=basic\nwheelhouse=/wheels\n")
    error_message = "The settings are the sink google and the given ones."
  }

  assert {
    condition     = strcontains(output.script, "ExecStart=/opt/chipwatch/current/bin/agent run") && strcontains(output.script, "chipwatch: it is gone")
    error_message = "The script brings the unit and the way back."
  }
}

run "all_that_can_be_said" {
  command = plan

  variables {
    agent = {
      version         = "1.2.3rc1"
      extras          = ["google", "tpu"]
      level           = "detailed"
      common_dims     = ["hostname", "instance_type"]
      dims            = { team = "a \"b\" \\ c", stage = "prod" }
      interval        = 2.5
      window          = 30
      project         = "other-project"
      metric_prefix   = "custom.googleapis.com/ours/"
      resource        = "gce_instance"
      prometheus_port = 9465
      config          = "log_level = \"info\"\n\n[collectors.disk]\npaths = [\"/\", \"/data\"]\n"
      wheelhouse      = "gs://wheels/chipwatch/1.2.3/"
      sums_sha256     = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    }
  }

  assert {
    condition     = strcontains(output.script, "\nwheelhouse=gs://wheels/chipwatch/1.2.3\n")
    error_message = "A slash at the end of a folder is taken off."
  }

  assert {
    condition     = strcontains(output.script, "\nproject = \"other-project\"\ninterval = 2.5\nwindow = 30\ndims.stage = \"prod\"\ndims.team = \"a \\\"b\\\" \\\\ c\"\nsinks.google.prefix = \"custom.googleapis.com/ours/\"\nsinks.google.resource = \"gce_instance\"\nsinks.prometheus.listen = \"0.0.0.0:9465\"\nlog_level = \"info\"\n\n[collectors.disk]\npaths = [\"/\", \"/data\"]\nEND_OF_CONFIG\n")
    error_message = "Keys come before your tables."
  }
}
