"""`agent`, `chipwatch` and `python -m chipwatch`: one and the same program."""

from __future__ import annotations

from chipwatch import claim_packages


def main() -> None:
    """Run the command line and exit."""
    claim_packages()
    from agent.cli import main as run  # noqa: PLC0415  # only now is it certain that this `agent` is ours

    run()


if __name__ == "__main__":
    main()
