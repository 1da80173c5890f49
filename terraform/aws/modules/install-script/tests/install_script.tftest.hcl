variables {
  agent = { version = "0.1.0", wheelhouse = "/wheels" }
}

run "as_usual" {
  command = plan

  assert {
    condition     = strcontains(output.script, "\nversion=0.1.0\nextras=cloudwatch\nsink=cloudwatch\nnamespace=Chipwatch\nregion=\ncommon_dims=instance_id,instance_type\nlevel=basic\nwheelhouse=/wheels\n")
    error_message = "The settings are the sink cloudwatch and the given ones."
  }

  assert {
    condition     = strcontains(output.script, "ExecStart=/opt/chipwatch/current/bin/agent run") && strcontains(output.script, "chipwatch: it is gone")
    error_message = "The script brings the unit and the way back."
  }

  assert {
    condition     = length(output.base64gzip) <= 21848
    error_message = "EC2 counts 16 KiB before base64."
  }
}

run "from_an_index" {
  command = plan

  variables {
    agent = {
      version      = "1.2.3rc1"
      level        = "detailed"
      region       = "eu-central-1"
      config       = "interval = 10\n[collectors.disk]\npaths = [\"/\"]\n"
      constraints  = "s3://wheels/constraints.txt"
      wheel_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
      wheelhouse   = null
    }
  }

  assert {
    condition     = strcontains(output.script, "\nregion=eu-central-1\n") && strcontains(output.script, "\ninterval = 10\n[collectors.disk]\npaths = [\"/\"]\nEND_OF_CONFIG\n") && strcontains(output.script, "\nwheelhouse=\n")
    error_message = "What is null is as what is left out."
  }
}
