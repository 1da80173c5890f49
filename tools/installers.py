"""The installer and what is made of it: one text, in which Terraform fills in the settings that options give elsewhere."""

from __future__ import annotations

import base64
import gzip
import re
import textwrap
from pathlib import Path

from chipwatch.base.version import __version__

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).with_name("install.sh")
INSTALL = ROOT / "install.sh"
AWS = ROOT / "terraform/aws/user-data.sh.tftpl"
CLOUD_INIT = ROOT / "terraform/aws/cloud-init.yaml"
GOOGLE = ROOT / "terraform/google/files"
SHARED = ("chipwatch.service", "uninstall.sh")
"""Files of terraform/aws/files that the modules for Google need too; each folder is published by itself."""
HEAD = """
# Comments on the code are in install.sh. Variables of this template, all strings; those marked * may not be empty:
#   version*      such as 0.1.0             extras        cloudwatch, google, tpu, all; several with commas
#   sink*         such as cloudwatch        namespace     CloudWatch's
#   region        else the instance's own   common_dims   such as instance_id,instance_type
#   level         basic, detailed, all      config        further TOML; keys first, then tables
# Where the agent comes from, one of two:
#   wheelhouse    s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///PATH or /PATH: what `make dist` made; no index is asked then
#   sums_sha256   SHA-256 of the wheelhouse's SHA256SUMS
# or
#   constraints   s3://, gs://, https:// or /PATH: our requirements/cloudwatch.txt or another; with it every file of an index is
#   wheel_sha256  held to its hash, and chipwatch's own to this one
#   index_url     https://; else what pip is set up for
#   unit*, uninstall*   the text of files/chipwatch.service and files/uninstall.sh
# One line each, but for the last two and config. EC2 takes 16 KiB: base64gzip(). Metadata of Compute Engine may have 256 KB, an OS
# policy's script 32."""
CLOUD_CONFIG = ROOT / "tools/cloud-init.yaml.txt"


def installers() -> dict[Path, str]:
    """Return the files that install the agent on machines, by path."""
    shared = {GOOGLE / name: (AWS.parent / "files" / name).read_text(encoding="utf-8") for name in SHARED}
    return {
        INSTALL: whole(),
        AWS: template(),
        GOOGLE / "install.sh.tftpl": template(),
        CLOUD_INIT: cloud_init(),
        **shared,
    }


def whole() -> str:
    """Return the installer with the unit and the uninstaller in it, and without settings."""
    unit, uninstall = ((AWS.parent / "files" / name).read_text(encoding="utf-8").strip() for name in SHARED)
    words = {"head": "", "config": "", "unit": unit, "uninstall": uninstall}
    return re.sub(r"@([a-z_]+)@", lambda mark: words.get(mark[1], mark[0]), TEXT.read_text(encoding="utf-8"))


def template() -> str:
    """Return the same as a template of Terraform, with a variable for each setting."""
    escaped = re.sub(
        r"(?m)  # (?!shellcheck).*$|^# (-- |Of ).*\n|^\n", "", TEXT.read_text(encoding="utf-8")
    )  # an OS policy takes 32 KiB
    escaped = escaped.replace("@head@", HEAD)
    escaped = re.sub(r"(?sm)^usage: .*?(?=^END_OF_USAGE)", "See install.sh of the same release.\n", escaped)
    escaped = escaped.replace("${", "$${").replace("%{", "%%{")
    escaped = re.sub(r"(?m)^(\w+)=$(?=[\s\S]*^END_OF_SETTINGS)", r"\1=${\1}", escaped)
    return re.sub(r"@(config|unit|uninstall)@", r"${\1}", escaped)


def cloud_init() -> str:
    """Return the same as a file of cloud-init; it stays as it is where it holds this text already, since packing varies."""
    text = whole()
    if CLOUD_INIT.exists() and packed_in(old := CLOUD_INIT.read_text(encoding="utf-8")) == text:
        packed = re.findall(r"(?m)^  [A-Za-z0-9+/=]+$", old)
    else:
        data = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        packed = textwrap.indent(textwrap.fill(data, 1200), "  ").splitlines()
    return CLOUD_CONFIG.read_text().format(packed="\n".join(packed), version=__version__)


def packed_in(text: str) -> str:
    """Return the installer that a file of cloud-init holds."""
    try:
        return gzip.decompress(base64.b64decode("".join(re.findall(r"(?m)^  ([A-Za-z0-9+/=]+)$", text)))).decode()
    except (OSError, ValueError, EOFError):
        return ""
