"""`python -m tests.bench`, which is what `make bench` runs."""

from tests.bench.bench import main

main()
