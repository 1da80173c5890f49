mock_provider "aws" {}

variables {
  script = "#!/bin/sh\necho done\n"
}

run "as_usual" {
  command = plan

  assert {
    condition     = aws_ssm_association.this[0].max_concurrency == "10%" && aws_ssm_association.this[0].max_errors == "1%" && aws_ssm_association.this[0].parameters["action"] == "install"
    error_message = "A tenth at a time, and it stops early."
  }

  assert {
    condition     = aws_ssm_association.this[0].targets[0].key == "tag:chipwatch" && aws_ssm_association.this[0].targets[0].values[0] == "yes"
    error_message = "Machines are chosen by tag."
  }
}

run "removed" {
  command = plan

  variables {
    action          = "uninstall"
    target_tags     = { app = ["training"], stage = ["prod", "test"] }
    max_concurrency = "5"
    max_errors      = "0"
    output_bucket   = "logs"
  }

  assert {
    condition     = aws_ssm_association.this[0].parameters["action"] == "uninstall" && aws_ssm_association.this[0].targets[*].key == tolist(["tag:app", "tag:stage"])
    error_message = "The same document takes it off."
  }
}

run "nothing" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition     = length(aws_ssm_association.this) == 0 && output.document_name == null
    error_message = "create = false creates nothing."
  }
}

run "refuses_a_script_that_is_too_long" {
  command = plan

  variables {
    script = join("\n", concat(["#!/bin/sh"], [for n in range(1024) : "# ${sha256(tostring(n))}"]))
  }

  expect_failures = [aws_ssm_document.this]
}
