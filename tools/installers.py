"""Installers of EC2 and of Compute Engine, from one text with words in place of `@NAME@`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).with_name("install.sh.tftpl")
AWS = ROOT / "terraform/aws/user-data.sh.tftpl"
GOOGLE = ROOT / "terraform/google/files"
SHARED = ("chipwatch.service", "uninstall.sh")
"""Files of terraform/aws/files that the modules for Google need too; each folder is published by itself."""
ON_EC2 = {
    "platform": "on EC2: Amazon Linux 2023, Ubuntu 22.04 and 24.04, Deep Learning AMIs. See docs/ec2.md.",
    "limit": " EC2 takes 16 KiB: base64gzip().",
    "written_by": "Written by this instance's user-data.",
    "cli": """aws_cli() {
  command -v aws > /dev/null || { command -v snap > /dev/null && snap install aws-cli --classic > /dev/null; } \\
    || die "$1: s3:// takes the AWS CLI, and aws is not on PATH"
}""",
    "copy_folder": 'aws_cli wheelhouse; retry aws s3 cp --recursive --only-show-errors "$from" "$folder" >&2',
    "copy_file": 'aws_cli constraints; retry aws s3 cp --only-show-errors "$from" "$to"',
    "report_failure": """report_failure() {  # to an alarm
  ! command -v aws > /dev/null || timeout 60 aws cloudwatch put-metric-data $${given[region]:+--region "$${given[region]}"} \\
    --namespace "$${given[namespace]:-Chipwatch}" --metric-name agent.install.failed --value 1 || true
}

""",
    "trap_begin": "trap 'code=$?; ",
    "trap_end": '; [ "$code" = 0 ] || report_failure\' EXIT',
    "bucket": "[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "scheme": "s3",
}  # fmt: skip
ON_COMPUTE_ENGINE = {
    "platform": "on Compute Engine: Debian 12 and 13, Ubuntu 22.04 and 24.04, Rocky and Red Hat 9. See README.md.",
    "limit": " Metadata may have 256 KB, an OS policy's script 32.",
    "written_by": "Written by the installer of terraform/google.",
    "cli": """gcloud_cli() {
  PATH=$PATH:/snap/bin  # where Ubuntu's images have it
  export CLOUDSDK_CONFIG=$work/gcloud CLOUDSDK_CORE_DISABLE_PROMPTS=1
  command -v gcloud > /dev/null || { command -v snap > /dev/null && snap install google-cloud-cli --classic > /dev/null; } \\
    || die "$1: gs:// takes the gcloud CLI, and gcloud is not on PATH"
}""",
    "copy_folder": 'gcloud_cli wheelhouse; mkdir -p "$folder"; retry gcloud storage rsync --recursive --no-user-output-enabled "$from" "$folder" >&2',
    "copy_file": 'gcloud_cli constraints; retry gcloud storage cp --no-user-output-enabled "$from" "$to"',
    "report_failure": "",
    "trap_begin": "trap '",
    "trap_end": "' EXIT",
    "bucket": "[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]",
    "scheme": "gs",
}  # fmt: skip


def installers() -> dict[Path, str]:
    """Return the files that install the agent on virtual machines, by path."""
    shared = {GOOGLE / name: (AWS.parent / "files" / name).read_text(encoding="utf-8") for name in SHARED}
    return {AWS: _filled(ON_EC2), GOOGLE / "install.sh.tftpl": _filled(ON_COMPUTE_ENGINE), **shared}


def _filled(words: dict[str, str]) -> str:
    return re.sub(r"@([a-z_0-9]+)@", lambda mark: words[mark[1]], TEXT.read_text(encoding="utf-8"))
