# A document and an association of Systems Manager that install, update and remove the agent in place: no instance is replaced.

locals {
  content = jsonencode({
    schemaVersion = "2.2"
    description   = "Installs, updates, takes back or removes chipwatch"
    parameters = {
      action = {
        type          = "String"
        description   = "install (also updates), rollback or uninstall"
        default       = "install"
        allowedValues = ["install", "rollback", "uninstall"]
      }
    }
    mainSteps = [{
      action       = "aws:runShellScript"
      name         = "chipwatch"
      precondition = { StringEquals = ["platformType", "Linux"] }
      inputs = {
        timeoutSeconds = tostring(var.timeout_seconds)
        # The installer's exit code is the step's: whatever is not 0 counts for max_errors.
        runCommand = [
          "set -eu",
          "installer=$(mktemp)",
          "trap 'rm -f \"$installer\"' EXIT",
          "cat > \"$installer\" <<'END_OF_INSTALLER'",
          chomp(var.script),
          "END_OF_INSTALLER",
          "case '{{ action }}' in install) set -- ;; *) set -- '--{{ action }}' ;; esac",
          "sh \"$installer\" \"$@\"",
        ]
      }
    }]
  })
}

resource "aws_ssm_document" "this" {
  count = var.create ? 1 : 0

  region          = var.region
  name            = var.name
  document_type   = "Command"
  document_format = "JSON"
  target_type     = "/AWS::EC2::Instance"
  content         = local.content
  tags            = var.tags

  lifecycle {
    precondition {
      condition     = length(local.content) <= 65536
      error_message = "script: a document of Systems Manager has at most 64 KiB; the agent's config is to blame."
    }
  }
}

resource "aws_ssm_association" "this" {
  count = var.create ? 1 : 0

  region              = var.region
  name                = aws_ssm_document.this[0].name
  association_name    = var.name
  document_version    = aws_ssm_document.this[0].latest_version # a new one is rolled out at once
  parameters          = { action = var.action }
  schedule_expression = var.schedule_expression
  max_concurrency     = var.max_concurrency
  max_errors          = var.max_errors
  compliance_severity = var.compliance_severity
  tags                = var.tags

  dynamic "targets" {
    for_each = var.target_tags

    content {
      key    = "tag:${targets.key}"
      values = targets.value
    }
  }

  dynamic "output_location" {
    for_each = var.output_bucket == null ? [] : [var.output_bucket]

    content {
      s3_bucket_name = output_location.value
      s3_key_prefix  = var.name
    }
  }
}
