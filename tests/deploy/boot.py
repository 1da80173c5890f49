"""The installer as each of its readers gets it: user-data from the template, the options of install.sh, the cloud-init file."""

import re
from pathlib import Path

from chipwatch.base.version import __version__

AWS = Path(__file__).parents[2] / "terraform/aws"
TEMPLATE = AWS / "user-data.sh.tftpl"
UNIT = AWS / "files/chipwatch.service"
UNINSTALL = AWS / "files/uninstall.sh"
CLOUD_INIT = AWS / "cloud-init.yaml"
INSTALL = AWS.parents[1] / "install.sh"
MARK = re.compile(r"\$\$\{|%%\{|\$\{\s*(\w+)\s*\}|\$\{|%\{")


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
