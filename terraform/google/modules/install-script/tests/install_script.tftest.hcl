variables {
  agent = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "as_usual" {
  command = plan

  assert {
    condition     = strcontains(output.script, "\nversion=0.1.0\nextras=google\nsink=google\nnamespace=\nregion=\ncommon_dims=\nlevel=basic\nwheelhouse=/wheels\n")
    error_message = "The settings are the sink google and what was said."
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

run "refuses_a_range" {
  command = plan

  variables {
    agent = { version = ">=0.1", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_two_lines" {
  command = plan

  variables {
    agent = { version = "0.1.0\nlevel=all", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_no_google" {
  command = plan

  variables {
    agent = { version = "0.1.0", extras = ["tpu"], wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_an_unknown_extra" {
  command = plan

  variables {
    agent = { version = "0.1.0", extras = ["google", "azure"], wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_an_unknown_level" {
  command = plan

  variables {
    agent = { version = "0.1.0", level = "most", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_words_with_blanks" {
  command = plan

  variables {
    agent = { version = "0.1.0", common_dims = ["host name"], wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_dimension_with_a_dash" {
  command = plan

  variables {
    agent = { version = "0.1.0", dims = { my-team = "x" }, wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_an_empty_dimension" {
  command = plan

  variables {
    agent = { version = "0.1.0", dims = { team = " " }, wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_no_interval" {
  command = plan

  variables {
    agent = { version = "0.1.0", interval = 0, wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_window_that_google_refuses" {
  command = plan

  variables {
    agent = { version = "0.1.0", window = 5, wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_the_number_of_a_project" {
  command = plan

  variables {
    agent = { version = "0.1.0", project = "123456789012", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_prefix_without_slash" {
  command = plan

  variables {
    agent = { version = "0.1.0", metric_prefix = "custom.googleapis.com/x", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_prefix_of_google" {
  command = plan

  variables {
    agent = { version = "0.1.0", metric_prefix = "compute.googleapis.com/x/", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_port_of_root" {
  command = plan

  variables {
    agent = { version = "0.1.0", prometheus_port = 80, wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_the_resource_global" {
  command = plan

  variables {
    agent = { version = "0.1.0", resource = "global", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_line_that_ends_the_script" {
  command = plan

  variables {
    agent = { version = "0.1.0", config = "a = 1\nEND_OF_CONFIG\nrm -rf /", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_two_tables_of_the_sink" {
  command = plan

  variables {
    agent = { version = "0.1.0", resource = "auto", config = "[sinks.google]\ntimeout = 5", wheelhouse = "/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_wheelhouse_on_s3" {
  command = plan

  variables {
    agent = { version = "0.1.0", wheelhouse = "s3://bucket/wheels" }
  }

  expect_failures = [var.agent]
}

run "refuses_sums_without_wheelhouse" {
  command = plan

  variables {
    agent = { version = "0.1.0", sums_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  expect_failures = [var.agent]
}

run "refuses_short_sums" {
  command = plan

  variables {
    agent = { version = "0.1.0", wheelhouse = "/wheels", sums_sha256 = "0123" }
  }

  expect_failures = [var.agent]
}

run "refuses_an_index_in_the_clear" {
  command = plan

  variables {
    agent = { version = "0.1.0", index_url = "http://pypi.example.com/simple", constraints = "/c.txt", wheel_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  expect_failures = [var.agent]
}

run "refuses_constraints_elsewhere" {
  command = plan

  variables {
    agent = { version = "0.1.0", constraints = "ftp://x/y", wheel_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  expect_failures = [var.agent]
}

run "refuses_constraints_without_the_wheel" {
  command = plan

  variables {
    agent = { version = "0.1.0", constraints = "/constraints.txt" }
  }

  expect_failures = [var.agent]
}

run "refuses_wheelhouse_and_index" {
  command = plan

  variables {
    agent = { version = "0.1.0", wheelhouse = "/wheels", index_url = "https://pypi.example.com/simple" }
  }

  expect_failures = [var.agent]
}

run "refuses_a_bare_name" {
  command = plan

  variables {
    agent = { version = "0.1.0", index_url = "https://pypi.example.com/simple" }
  }

  expect_failures = [var.agent]
}
