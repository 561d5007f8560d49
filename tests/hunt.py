"""Search for random traces that break a test: new examples in every round, until time is up.

    python -m tests.hunt --minutes 60

Hypothesis keeps a failing example in .hypothesis, so that the test fails again until it is fixed.
Then make the example a small test with its own name.
"""

import os
import subprocess
import sys
import time

import click


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="How long to search.")
@click.option("--examples", default=100, show_default=True, help="Random traces per test.")
def main(minutes: float, examples: int) -> None:
    """Run the tests with random examples repeatedly; stop at the first failure."""
    environment = {**os.environ, "NSYSFLOW_HUNT": "1", "NSYSFLOW_EXAMPLES": str(examples)}
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "hypothesis", "tests"]
    argv += ["--numprocesses", "auto", "--maxprocesses", "8", "--dist", "worksteal"]
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while time.monotonic() < until:
        code = subprocess.run(argv, env=environment, check=False).returncode
        if code:
            sys.exit(code)
        rounds += 1
        left = max(0.0, until - time.monotonic()) / 60
        click.echo(f"round {rounds}: nothing found; {left:.0f} minutes left", err=True)


if __name__ == "__main__":
    main()
