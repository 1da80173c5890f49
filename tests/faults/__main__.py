"""
`python -m tests.faults`, which is what `make faults` runs: the whole campaign, or PARTS of it.

Unless FULL=1 it takes ten minutes: each part its share of them. SEED=n repeats the campaign of that seed, AT=n with
PARTS=name begins with that trial, KEEP=folder keeps the inputs that failed. It ends with 1 where anything failed.
"""

import argparse
import sys

from tests.faults.campaign import main

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__).parse_args()
    sys.exit(main())
