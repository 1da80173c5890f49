"""
Builds what machines without Python take: one file, an archive for install.sh, debs and rpms, with the Python that runs this file inside.

A deb and an rpm are two packages: `chipwatch-google` adds what only Google's services and the kubelet need, which is more than all else.

The environment has the program and PyInstaller: `make packages` makes it. The same commit, Python and tools give the same
bytes. The least glibc is that of the machine that builds, so a release is built on the oldest that is supported.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
UNIT = ROOT / "terraform/aws/files/chipwatch.service"
INSTALLED = "/opt/chipwatch/current/bin/agent"
"""The program in the unit of our own installer."""
OF_INSTALLER = r"# .* install\.sh .*\nExecStartPre=-.*\n"
FOLDER = "usr/lib/chipwatch"
"""Of the packages. Not /opt: dpkg takes a folder away with its last file, and who made /opt is not known then."""
PROGRAM = f"/{FOLDER}/chipwatch"
GOOGLE = ("google", "grpc", "grpc_status", "proto", "cryptography", "requests", "certifi", "charset_normalizer", "idna",
          "opentelemetry", "pyasn1", "pyasn1_modules")  # fmt: skip
"""The modules that chipwatch-google has: google-cloud-monitoring with what it needs, and grpcio."""
OF_GOOGLE = (*GOOGLE, "_cffi_backend")
"""How the names of its files begin."""
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))
"""The time of every file in a form (s); dpkg-deb and rpmbuild take it from the environment."""
SUMMARY = "Watches every chip of a machine-learning fleet"
ABOUT = """Reads the host and its accelerators, and sends true metrics to CloudWatch, Google
Cloud Monitoring, OTLP, Prometheus or MLflow. The service is off until you enable it."""
OF_GOOGLE_SUMMARY = "Google Cloud Monitoring, TPUs and the pods of a kubelet for chipwatch"
OF_GOOGLE_ABOUT = """Adds the libraries that chipwatch needs to send to Google Cloud Monitoring, to ask a
TPU's runtime, and to ask a kubelet which pod has a device."""
CONFIG = """# chipwatch: see `chipwatch config` for all options, and `chipwatch check --config FILE` before you
# enable the service: systemctl enable --now chipwatch
# sink = ["cloudwatch"]
# common_dims = ["instance_id", "instance_type"]
"""
BEFORE = """if [ -e /opt/chipwatch/current ]; then
  echo "chipwatch: the installer of chipwatch has put it here before; first run: bash /opt/chipwatch/uninstall.sh" >&2
  exit 1
fi
"""
RELOAD = """if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
AFTER_UPDATE = """if [ -d /run/systemd/system ]; then systemctl try-restart chipwatch.service; fi
"""
STOP = """if [ -d /run/systemd/system ]; then systemctl disable --now --quiet chipwatch.service || true; fi
"""
NOT_LOADED = b"Failed to load Python shared library '%s': %s\n\0"
"""A message of PyInstaller's start, before any Python runs."""
INSTEAD = b"Cannot load '%s' (noexec? set TMPDIR): %s\n\0"
"""The same for the one file, which unpacks itself into a folder where programs may not execute."""
FORGET = f"""rm -rf /{FOLDER}
if [ ! -e /opt/chipwatch/current ]; then  # install.sh has not put it here since
  rm -rf /var/lib/chipwatch /var/lib/private/chipwatch /etc/chipwatch
fi
"""


def main() -> None:
    """Build the forms that are named; print the path of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", nargs="+", choices=("onefile", "archive", "deb", "rpm"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version("chipwatch")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        if "onefile" in words.form:
            made = freeze("file", work)
            made.write_bytes(with_advice(made.read_bytes()))
            print(shutil.move(made, words.out / f"chipwatch-{version}-linux-{platform.machine()}"))
        if {"archive", "deb", "rpm"} & {*words.form}:
            program = freeze("folder", work)
            if "archive" in words.form:
                print(*build_archives(program, version, words.out))
            trees = lay_out(program, work / "tree"), work / "google"
            take_apart(*trees)
            for form, build in (("deb", build_debs), ("rpm", build_rpms)):
                if form in words.form:
                    print(*build(*trees, version, words.out), sep="\n")


def freeze(form: str, work: Path) -> Path:
    """Return what PyInstaller makes: a file or a folder."""
    folder = work / form
    words = ("--noconfirm", "--log-level", "ERROR", "--distpath", folder, "--workpath", work / f"{form}-build")
    subprocess.run(
        [sys.executable, "-m", "PyInstaller", *map(str, words), str(HERE / "program.spec")],
        env={**os.environ, "FORM": form, "APART": " ".join(GOOGLE if form == "folder" else ()), "PYTHONHASHSEED": "1"}, check=True,
    )  # fmt: skip
    return folder / "chipwatch"


def with_advice(program: bytes) -> bytes:
    """Return the one file with a message that names TMPDIR; raise ValueError if PyInstaller has another message."""
    if program.count(NOT_LOADED) != 1:
        raise ValueError(f"PyInstaller does not have this message once: {NOT_LOADED!r}")
    return program.replace(NOT_LOADED, INSTEAD.ljust(len(NOT_LOADED), b"\0"))


def build_archives(program: Path, version: str, out: Path) -> list[Path]:
    """Return what install.sh takes on a machine without Python: the program, and bin/ with its commands."""
    name = f"chipwatch-{version}-linux-{platform.machine()}"
    with tempfile.TemporaryDirectory() as scratch:
        commands = Path(scratch, "bin")
        commands.mkdir()
        for command in ("agent", "chipwatch"):
            (commands / command).symlink_to("../program/chipwatch")
        owner = {"uid": 0, "gid": 0, "uname": "", "gname": "", "mtime": EPOCH}
        with (
            gzip.GzipFile(out / f"{name}.tar.gz", "wb", mtime=EPOCH) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            for path, inside in ((program, "program"), (commands, "bin")):
                archive.add(path, f"{name}/{inside}", filter=lambda entry: entry.replace(**owner, deep=False))
    return [out / f"{name}.tar.gz"]


def lay_out(program: Path, tree: Path) -> Path:
    """Return the files of both packages as they lie on a machine."""
    shutil.copytree(program, tree / FOLDER, symlinks=True)
    (tree / FOLDER / "plugins").mkdir()
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/chipwatch").symlink_to(PROGRAM)
    _write(
        tree / "usr/lib/systemd/system/chipwatch.service",
        re.sub(OF_INSTALLER, "", UNIT.read_text()).replace(INSTALLED, PROGRAM),
    )
    _write(tree / "etc/chipwatch/chipwatch.toml", CONFIG)
    _write(tree / "usr/share/doc/chipwatch/copyright", (ROOT / "LICENSE").read_text())
    changes = gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0)
    (tree / "usr/share/doc/chipwatch/changelog.gz").write_bytes(changes)
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return tree


def take_apart(tree: Path, google: Path) -> None:
    """Move the libraries of chipwatch-google from the files of both packages to its own."""
    inside = f"{FOLDER}/_internal"
    (google / inside).mkdir(parents=True)
    for path in (tree / inside).iterdir():
        if path.name.startswith(OF_GOOGLE):
            path.rename(google / inside / path.name)
    _write(google / "usr/share/doc/chipwatch-google/copyright", (ROOT / "LICENSE").read_text())


def glibc(tree: Path) -> str:
    """Return the least version of glibc that every library of a tree runs with."""
    names = (path.read_bytes() for path in (tree / FOLDER).rglob("*") if path.is_file() and not path.is_symlink())
    found = {tuple(map(int, mark.split(b"."))) for data in names if data[:4] == b"\x7fELF"
             for mark in re.findall(rb"\0GLIBC_(2\.\d+)(?=\0)", data)}  # fmt: skip
    return ".".join(map(str, max(found)))


def build_debs(tree: Path, google: Path, version: str, out: Path) -> list[Path]:
    """Return the packages for Debian and Ubuntu; needs dpkg-deb."""
    scripts = {
        "preinst": BEFORE,
        "postinst": RELOAD + f'if [ "$1" = configure ] && [ -n "$2" ]; then\n{AFTER_UPDATE}fi\n',
        "prerm": f'if [ "$1" = remove ]; then\n{STOP}fi\n',
        "postrm": RELOAD + f'if [ "$1" = purge ]; then\n{FORGET}fi\n',
    }
    own = {"Package": "chipwatch", "Depends": "libgcc-s1", "Description": _described(SUMMARY, ABOUT)}
    others = {
        "Package": "chipwatch-google", "Depends": f"chipwatch (= {version}), libstdc++6",
        "Description": _described(OF_GOOGLE_SUMMARY, OF_GOOGLE_ABOUT),
    }  # fmt: skip
    return [_deb(tree, version, own, scripts, out), _deb(google, version, others, {"postinst": AFTER_UPDATE}, out)]


def _deb(tree: Path, version: str, fields: dict[str, str], scripts: dict[str, str], out: Path) -> Path:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    package = out / f"{fields['Package']}_{version}_{machine}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        shutil.copytree(tree, root, symlinks=True)
        size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir()) // 1024
        known = {"Depends": f"libc6 (>= {glibc(tree)}), {fields['Depends']}", "Version": version,
                 "Architecture": machine, "Maintainer": "the maintainers of chipwatch <security@chipwatch.invalid>",
                 "Section": "admin", "Priority": "optional", "Installed-Size": str(size)}  # fmt: skip
        lines = (f"{name}: {value}\n" for name, value in (fields | known).items())
        _write(root / "DEBIAN/control", "".join(lines))
        if (tree / "etc").exists():
            _write(root / "DEBIAN/conffiles", "/etc/chipwatch/chipwatch.toml\n")
        for name, text in scripts.items():
            _write(root / "DEBIAN" / name, f"#!/bin/sh\nset -e\n{text}").chmod(0o755)
        words = ("--root-owner-group", "-Zxz", "--build", root, package)
        subprocess.run(["dpkg-deb", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return package


def _described(summary: str, about: str) -> str:
    return "\n ".join((summary, *about.splitlines()))


def build_rpms(tree: Path, google: Path, version: str, out: Path) -> list[Path]:
    """Return the packages for Amazon Linux, Red Hat and SUSE; needs rpmbuild."""
    apart = sorted(f"/{FOLDER}/_internal/{path.name}" for path in (google / FOLDER / "_internal").iterdir())
    words = {
        "version": version, "tree": tree, "google_tree": google, "glibc": glibc(tree), "google_glibc": glibc(google), "folder": f"/{FOLDER}",
        "about": ABOUT, "google_summary": OF_GOOGLE_SUMMARY, "google_about": OF_GOOGLE_ABOUT, "google": "\n".join(apart),
        "not_google": "\n".join(f"%exclude {path}" for path in apart), "before": BEFORE, "after_install": RELOAD,
        "after_google": AFTER_UPDATE,
        "before_removal": f'if [ "$1" = 0 ]; then\n{STOP}fi',
        "after_removal": f'{RELOAD}if [ "$1" != 0 ]; then\n{AFTER_UPDATE}fi',
    }  # fmt: skip
    text = (HERE / "chipwatch.rpm.spec").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        spec = _write(Path(scratch, "chipwatch.spec"), re.sub("@([a-z_]+)@", lambda mark: str(words[mark[1]]), text))
        command = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {scratch}", str(spec)]
        subprocess.run(command, check=True)
        return [Path(shutil.move(made, out / made.name)) for made in sorted(Path(scratch, "RPMS").rglob("*.rpm"))]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
