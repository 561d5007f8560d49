"""How many branches of the analysis its tests take, from coverage.py's JSON; exit 1 if too few.

coverage.py's own floor is of statements and branches together, where statements are most.
"""

import json
import sys
from typing import Final

import click

LEAST_PCT: Final = 95


def main() -> None:
    """Read the JSON from standard input."""
    totals = json.load(sys.stdin)["totals"]
    taken, all_of_them = totals["covered_branches"], totals["num_branches"]
    pct = 100 * taken / all_of_them
    click.echo(f"branches of the analysis that its tests take: {pct:.1f} % of {all_of_them:,}")
    if pct < LEAST_PCT:
        sys.exit(f"at least {LEAST_PCT} % are wanted")


if __name__ == "__main__":
    main()
