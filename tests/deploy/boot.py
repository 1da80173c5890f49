"""
Makes the installers from their one source: user-data from the template, the cloud-init file from user-data.

`python -m tests.deploy.boot` renews terraform/aws/cloud-init.yaml.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from chipwatch.contract.version import __version__

AWS = Path(__file__).parents[2] / "terraform/aws"
TEMPLATE = AWS / "user-data.sh.tftpl"
UNIT = AWS / "files/chipwatch.service"
UNINSTALL = AWS / "files/uninstall.sh"
CLOUD_INIT = AWS / "cloud-init.yaml"
MARK = re.compile(r"\$\$\{|%%\{|\$\{\s*(\w+)\s*\}|\$\{|%\{")
HEAD = """\
#cloud-config
# The agent on EC2 without Terraform: this file as user-data. Change the lines between END_OF_SETTINGS, wheelhouse and
# sums_sha256 at least, and those between END_OF_CONFIG for further TOML; docs/ec2.md says what they mean.
# Made from user-data.sh.tftpl.
write_files:
-
 path: /run/chipwatch/install.sh
 permissions: "0700"
 content: |
"""
TAIL = """\
runcmd:
- [bash, /run/chipwatch/install.sh]
"""


def variables(**given):
    """Return the template's variables: an ordinary instance's, changed by `given`."""
    usual = dict.fromkeys(re.findall(r"(?m)^(\w+)=\$\{\1\}$", TEMPLATE.read_text()), "")
    usual |= {"version": __version__, "extras": "cloudwatch", "sink": "cloudwatch", "config": ""}
    usual |= {"common_dims": "instance_id,instance_type", "unit": UNIT.read_text(), "uninstall": UNINSTALL.read_text()}
    return usual | given


def render(template, values):
    """Render as Terraform's templatefile() does what the template uses of it: names, and `$${` and `%%{` for themselves."""

    def one(found):
        if found[1]:
            return values[found[1]]
        if found[0] in ("${", "%{"):
            raise ValueError(f"only plain names are known here: {template[found.start() : found.start() + 40]!r}")
        return found[0][1:]

    return MARK.sub(one, template)


def user_data(**given):
    return render(TEMPLATE.read_text(), variables(**given))


def cloud_init():
    """Return the cloud-init file: the script without what only speaks of the template, as EC2 takes 16 KiB."""
    script = re.sub(r"(?ms)^# Variables of .*?\n(?!#)", "", user_data())
    return HEAD + textwrap.indent(script, " " * 2) + TAIL


if __name__ == "__main__":
    CLOUD_INIT.write_text(cloud_init())
