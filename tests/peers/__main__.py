"""`make peers`: installs what it can, measures the agent beside other programs, and writes docs/benchmarks.md, its chart and README's figures."""

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.bench.bench import machine
from tests.bench.child import ROOT
from tests.bench.scale import courses
from tests.peers import chart, page
from tests.peers.programs import BY_NAME, PROGRAMS, install, install_system
from tests.peers.running import rounds
from tools.readme import with_figures

PAGE, CHART, README = ROOT / "docs/benchmarks.md", ROOT / "docs/media/peers.svg", ROOT / "README.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print; a whole run writes the page, too."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of a round (60)")
    parser.add_argument("--warm", type=float, default=20, help="seconds from the last start to the first reading (20)")
    parser.add_argument("--runs", type=int, default=3, help="rounds (3)")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="NAME,...", help=f"some of {', '.join(BY_NAME)}")  # fmt: skip
    parser.add_argument("--apt", action="store_true", help="install programs of the system, too (needs root)")
    options = parser.parse_args(argv)
    if not (options.seconds >= 1 and options.warm >= 0 and options.runs >= 1):
        parser.error("--seconds and --runs must be 1 or more, --warm 0 or more")
    if unknown := sorted(set(options.only or ()) - BY_NAME.keys()):
        parser.error(f"--only: no such program: {', '.join(unknown)}")
    if (options.runs * (options.warm + options.seconds + len(BY_NAME) / 2)) > 720:
        parser.error("that takes more than 12 minutes: fewer --runs, or shorter ones")
    programs = [program for program in PROGRAMS if not options.only or program.name in options.only]
    if any(program.is_installed for program in programs):
        install()
    if options.apt:
        install_system()
    about = machine()
    results, absent = rounds(programs, options.runs, options.seconds, options.warm)
    sys.stdout.write(page.table(results, absent) + "\n")
    if options.only:
        return
    scales = courses()
    sys.stdout.write(page.scale(scales) + "\n")
    text = PAGE.read_text()
    for part, measured in (
        ("table", page.table(results, absent)),
        ("machine", page.machine(about, options.runs, options.seconds, options.warm)),
        ("scale", page.scale(scales)),
    ):
        text = page.replaced(text, part, measured)
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(chart.svg(page.bars(results)))
    PAGE.write_text(text)
    README.write_text(with_figures(README.read_text(), text))
    sys.stdout.write(f"written: {PAGE.relative_to(ROOT)}, {README.name}, {CHART.relative_to(ROOT)}\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the programs end, too
    main()
