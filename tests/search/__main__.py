"""
`python -m tests.search`, which is what `make search` runs: lives of the real agent in a world that misbehaves, and odd input.

It takes SECONDS (600) and prints its SEED, which repeats it. PARTS="lives inputs" runs some parts; AT=n begins with that
trial, KEEP=folder keeps the inputs that failed. It ends with 1 where a property does not hold.
"""

import argparse
import sys

from tests.search.campaign import main

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.search", description=__doc__).parse_args()
    sys.exit(main())
