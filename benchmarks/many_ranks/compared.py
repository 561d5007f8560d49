"""Make a run of many ranks with a delay, analyse it, and print what was found beside the truth.

    python -m benchmarks.many_ranks.compared FOLDER --kernels 5_000 --delay copies --every 10

It takes the options of `python -m benchmarks.many_ranks`. Costs are per delayed step, without the
last step, which no other follows. The reports are removed afterwards; truth.json and what was found
stay in FOLDER.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import polars as pl

REASON: Final = {
    "compute": "cost_work_ns",
    "work": "cost_work_ns",
    "copies": "cost_copy_ns",
    "host": "cost_host_ns",
}
"""The reason that stands for each delay of a rank."""

_NONE_US: Final = 50.0
"""A true cost below this counts as none, so the difference is not shown as a share of it."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(folder: Path, options: tuple[str, ...]) -> None:
    """Make a run in FOLDER with these options, analyse it, and compare."""
    python, found = [sys.executable, "-m"], folder / "found"
    subprocess.run([*python, "benchmarks.many_ranks", folder, *options], check=True)
    page = subprocess.run(
        [*python, "nsysflow", "analyze", folder, "-o", found, "--no-cache", "--workers", "2"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    peak_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    first = page.stdout.splitlines()[2].strip()
    click.echo(f"{found_beside(found, truth)}; {peak_gb:.2f} GB\n  {first}")
    for report in folder.glob("rank*.sqlite"):
        report.unlink()


def found_beside(found: Path, truth: dict[str, Any]) -> str:
    """What was found in a folder of tables beside the truth, in a line."""
    delay, judged = truth["delay"], _judged(found, truth)
    if delay["kind"] == "link":
        slow = pl.read_csv(found / "bandwidth.csv").filter(pl.col("slow_ns") > 0)
        named = ", ".join(str(group) for group in slow["group"])
        return f"link of group {named}: {_costs(sum(slow['slow_ns'].to_list()), truth, judged)}"
    groups = pl.read_csv(found / "rank_groups.csv").filter(pl.col("rank") == delay["rank"])
    if groups.is_empty():
        return f"rank {delay['rank']} not found"
    row = groups.sort("saved_step_ns", descending=True, nulls_last=True).row(0, named=True)
    share = 100 * row[REASON[delay["kind"]]] / row["cost_ns"] if row["cost_ns"] else 0
    costs = _costs((row["saved_step_ns"] or 0) * len(judged), truth, judged)
    waits_us = row["cost_step_ns"] / 1e3
    return (
        f"{row['report']}, {len(judged)} steps: {costs}; the others wait {waits_us:,.0f} us a"
        f" step; {share:.0f} % {delay['kind']}"
    )


def _judged(found: Path, truth: dict[str, Any]) -> list[int]:
    """The steps of the delayed rank, without the last one."""
    rank = truth["delay"].get("rank", 0)
    steps = pl.read_csv(found / "rank_steps.csv").filter(pl.col("rank") == rank)
    return sorted(steps["step"])[:-1]


def _costs(found_ns: float, truth: dict[str, Any], judged: Sequence[int]) -> str:
    """The cost that was found and the true one, per delayed step."""
    true_ns = sum(truth["steps_ns"][step] - truth["steps_without_ns"][step] for step in judged)
    delayed = max(1, len({*truth["delayed_steps"]} & {*judged}))
    found_us, true_us = (ns / delayed / 1e3 for ns in (found_ns, true_ns))
    off = f" ({100 * (found_ns / true_ns - 1):+.1f} %)" if true_us >= _NONE_US else ""
    return f"found {found_us:,.0f} us, true {true_us:,.0f} us{off}"


if __name__ == "__main__":
    main()
