"""Folders as /sys has them, made of captures: tests/fixtures/SOURCES.sysfs.txt."""

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures/sysfs"
REFUSES = Path("/sys/class/net/lo/speed")
"""A real file of the kernel whose reading fails with EINVAL."""


def build(root: Path, *names: str) -> Path:
    """Write the files of the captures `names` below `root`, links as links; EINVAL is a file that fails so."""
    for name in names:
        for line in (FIXTURES / f"{name}.tsv").read_text().splitlines():
            path, _, content = line.partition("\t")
            write(root / path, content)
    return root


def write(path: Path, content: str) -> None:
    """Write one file in place of the one that is there; make a link of `-> target`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if content == "EINVAL":
        path.symlink_to(REFUSES)
    elif content.startswith("-> "):
        path.symlink_to(content[3:])
    else:
        path.write_text(content.replace("\\n", "\n") + "\n")


class FailingFile:
    """An open file of a device whose reading fails."""

    path = Path("a file")

    def __init__(self, code: int) -> None:
        """Fail with this error of the system."""
        self._code = code

    def read(self) -> bytes:
        """Raise OSError."""
        raise OSError(self._code, "failing")

    def close(self) -> None:
        """Do nothing."""
