"""Give nsysflow mutated reports and other files, and see that it never breaks.

    python -m tests.fuzz --cases 50000 --seed 1     or     make fuzz N=50000

Processes run side by side, and a seed gives the same cases for any number of them. A case is one
mutated input and one command that reads it (tests/fuzz/cases.py says what counts as a
failure). A failure prints the command that repeats it; then make it a small test with its own name.
At the end come the shares of what was refused, by kind of input and by message.
"""

import json
import os
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import Any, Final

import click

WALL_S: Final = 180.0
"""A process that says nothing for so long hangs."""

OF_A_PROCESS: Final = 125
"""Cases of one process: a new one begins with little memory."""

ADDRESSES: Final = 12 << 30
"""So much memory a process may map."""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@click.command()
@click.option("--cases", "count", default=50_000, show_default=True, help="How many to run.")
@click.option("--seed", default=1, show_default=True, help="Gives the same cases again.")
@click.option("--first", default=0, show_default=True, help="The first case's number.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=_cores,
    show_default="cores",
    help="So many processes at once.",
)
@click.option("--only", is_flag=True, help="Run the first case alone, and show its failure.")
@click.option("--here", is_flag=True, hidden=True)
@click.option("--results", type=Path, help="Append each outcome to this file, as a line of JSON.")
def main(
    count: int, seed: int, first: int, jobs: int, only: bool, here: bool, results: Path | None
) -> None:
    """Run mutated inputs through nsysflow."""
    if only or here:
        _run_here(seed, range(first, first + (1 if only else count)))
        return
    outcomes: list[dict[str, Any]] = []
    end = first + count
    parts = [range(at, min(at + OF_A_PROCESS, end)) for at in range(first, end, OF_A_PROCESS)]
    with ThreadPoolExecutor(jobs) as pool:  # each thread waits for a process
        for part in pool.map(lambda numbers: _of_part(seed, numbers), parts):
            for outcome in part:
                if outcome["failure"]:
                    _show(seed, outcome)
                if results is not None:
                    with results.open("a") as file:
                        file.write(json.dumps(outcome) + "\n")
            outcomes += part
            click.echo(f"{len(outcomes)} of {count} cases", err=True)
    failed = _summary(outcomes)
    sys.exit(1 if failed else 0)


def _run_here(seed: int, numbers: range) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    from tests.fuzz.cases import run_case

    for number in numbers:
        click.echo(json.dumps({"begun": number}))
        click.echo(json.dumps(vars(run_case(seed, number))))


def _of_part(seed: int, numbers: range) -> list[dict[str, Any]]:
    """The outcomes of all cases, in as many processes as it takes."""
    outcomes: list[dict[str, Any]] = []
    while len(outcomes) < len(numbers):
        at = len(outcomes)
        outcomes += _of_process(seed, numbers[at], len(numbers) - at)
    return outcomes


def _of_process(seed: int, first: int, count: int) -> Iterator[dict[str, Any]]:
    """The outcomes of cases in a process of their own, until one ends it."""
    argv = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--here", "--seed", str(seed)]
    argv += ["--first", str(first), "--cases", str(count)]
    limits = {"POLARS_MAX_THREADS": "1", "NSYSFLOW_CACHE": "off"}
    number, done, why = None, 0, ""
    with (
        TemporaryFile("w+") as said,
        subprocess.Popen(
            argv, env=os.environ | limits, stdout=subprocess.PIPE, stderr=said, text=True
        ) as running,
    ):
        assert running.stdout is not None
        while done < count:
            if not select([running.stdout], [], [], WALL_S)[0]:
                running.kill()
                why = f"hangs: nothing for {WALL_S:.0f} s"
            line = running.stdout.readline()
            if not line:
                break
            held = json.loads(line)
            if "begun" in held:
                number = held["begun"]
            else:
                done += 1
                yield held
        if done < count:
            said.seek(0)
            why = why or f"it ended with {running.wait()}: {said.read()[-3000:]}"
            if number is None:  # each other process would end likewise
                raise click.ClickException(f"no case could begin: {why}")
            yield _unfinished(number, why)


def _unfinished(number: int, failure: str) -> dict[str, Any]:
    """The outcome of a case that ended its process."""
    unknown = {"input": "", "changes": [], "by_bytes": False, "words": [], "code": None, "said": ""}
    return {"number": number, **unknown, "failure": failure}


def _show(seed: int, outcome: dict[str, Any]) -> None:
    click.echo(f"case {outcome['number']}: {outcome['input']}: {'; '.join(outcome['changes'])}")
    click.echo(f"  nsysflow {' '.join(outcome['words'])}")
    click.echo("  " + outcome["failure"].strip()[-1500:].replace("\n", "\n  "))
    click.echo(f"again: python -m tests.fuzz --seed {seed} --first {outcome['number']} --only\n")


_VARIES: Final = re.compile(r"\./\S+|'[^']*'|\b\d+\b")


def _summary(outcomes: list[dict[str, Any]]) -> int:
    """Print how many failed, and what share of each kind was refused and why; how many failed."""
    failed = sum(1 for each in outcomes if each["failure"])
    for kind in sorted({each["input"] for each in outcomes}):
        for by_bytes in (False, True):
            of_kind = [e for e in outcomes if (e["input"], e["by_bytes"]) == (kind, by_bytes)]
            refused = [each for each in of_kind if each["code"] == 1]
            if of_kind:
                by = "bytes" if by_bytes else "structure"
                share = len(refused) / len(of_kind)
                click.echo(f"{kind} by {by}: {len(of_kind)} cases, {share:.0%} refused")
            reasons = Counter(
                _VARIES.sub("_", each["said"].split("\n")[0])[:110] for each in refused
            )
            for reason, times in reasons.most_common(12):
                click.echo(f"  {times:5} {reason}")
    click.echo(f"{len(outcomes)} cases, {failed} failures")
    return failed


if __name__ == "__main__":
    main()
