"""Make a run of many ranks from a real report, with a delay whose cost is known.

    python -m benchmarks.many_ranks FOLDER --ranks 64 --kernels 100_000 --delay host --rank 37

Each rank repeats the usual step of the report with a jitter of its own, waits for the others in
each collective, and has a report with its own clock: FOLDER/rank0.sqlite and so on. What was
injected, and what it costs, is in FOLDER/truth.json.
"""

import json
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

import click
import numpy as np

from benchmarks.many_ranks.changed import add_copy, add_tensor_parallelism, name_waits
from benchmarks.many_ranks.recorded import read_step
from benchmarks.many_ranks.simulated import Delay, Groups, Kind, Run, simulate
from benchmarks.many_ranks.step import KERNELS, Step
from benchmarks.many_ranks.written import Writer, empty_export, unpack

SAMPLE: Final = Path(__file__).parents[2] / "samples" / "ddp-bucketed-rank0.sqlite.xz"
KINDS: Final = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A run to make: `kernels` per rank at least; `tp` ranks share a model; the same seed gives the
    same ranks and jitter."""

    report: Path = SAMPLE
    ranks: int = 64
    kernels: int = 100_000
    tp: int = 1
    communicators: bool = True
    delay: Delay | None = None
    seed: int = 0


def make_run(folder: Path, wanted: Wanted) -> dict[str, Any]:
    """Write a run's reports and truth.json.

    Returns:
        What is in truth.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        base = unpack(wanted.report, Path(scratch) / "base.sqlite")
        with closing(sqlite3.connect(base)) as db:
            step = read_step(db)
        if wanted.tp > 1:
            add_tensor_parallelism(step)
        if wanted.delay and wanted.delay.kind == "copies":
            add_copy(step)
        name_waits(step)
        steps = -(-wanted.kernels // sum(op.table == KERNELS for op in step.ops))
        groups = Groups(wanted.ranks, wanted.tp)
        run = simulate(step, groups, steps, wanted.seed, wanted.delay)
        without = simulate(step, groups, steps, wanted.seed, None)
        pid = int(step.spans[0].values["globalTid"]) >> 24 & 0xFFFFFF
        empty_export(base, pid=pid)
        writer = Writer(
            base, folder, pid, step, groups, run, wanted.seed, wanted.delay, wanted.communicators
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(writer.write, range(wanted.ranks)))
    truth = truth_of(wanted, step, run, without)
    (folder / "truth.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")
    return truth


def truth_of(wanted: Wanted, step: Step, run: Run, without: Run) -> dict[str, Any]:
    """What was made, and what the delay costs: per step, and in all."""
    groups, delay = Groups(wanted.ranks, wanted.tp), wanted.delay
    steps = run.starts.shape[1]
    lasted, lasted_without = (float(r.ends[:, -1].max() - r.starts.min()) for r in (run, without))
    return {
        "report": wanted.report.name.split(".")[0],
        "seed": wanted.seed,
        "ranks": wanted.ranks,
        "steps": steps,
        "kernels": steps * sum(op.table == KERNELS for op in step.ops),
        "communicators": wanted.communicators,
        "groups": {
            kind: groups.members(kind).tolist()
            for kind in ("dp", "tp")
            if kind == "dp" or wanted.tp > 1
        },
        "delay": delay and asdict(delay),
        "delayed_steps": [s for s in range(steps) if delay and delay.in_step(s)],
        "step_ns": lasted / steps,
        "step_without_ns": lasted_without / steps,
        "steps_ns": _lengths(run),
        "steps_without_ns": _lengths(without),
        "cost_step_ns": (lasted - lasted_without) / steps,
        "cost_ns": lasted - lasted_without,
    }


def _lengths(run: Run) -> list[int]:
    """The length of each step in ns: from its first operation to that of the next step, of the last
    step to its end. It is the median over the ranks."""
    marks = np.concatenate([run.begins(), run.ends[:, -1].max(axis=1, keepdims=True)], axis=1)
    lengths: list[int] = np.median(np.diff(marks, axis=1), axis=0).round().astype(int).tolist()
    return lengths


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--report",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=SAMPLE,
    help="The export whose step is repeated; a DDP sample by default.",
)
@click.option("--ranks", default=64, show_default=True, help="How many ranks.")
@click.option("--kernels", default="100_000", show_default=True, help="Kernels per rank, at least.")
@click.option("--tp", default=1, show_default=True, help="Ranks that share a model; 1: none do.")
@click.option("--communicators/--no-communicators", default=True, help="Name NCCL's communicators.")
@click.option(
    "--delay", "kind", type=click.Choice(KINDS), help="What to inject; nothing by default."
)
@click.option(
    "--rank", default=0, show_default=True, help="The rank to delay; a link of its TP group."
)
@click.option("--every", default=1, show_default=True, help="Delay one step of so many.")
@click.option("--us", default=1_000.0, show_default=True, help="How long the delay is.")
@click.option("--factor", default=2.0, show_default=True, help="How much longer a slow link takes.")
@click.option("--seed", default=0, show_default=True, help="Ranks and jitter follow from it.")
def main(
    folder: Path,
    report: Path,
    ranks: int,
    kernels: str,
    tp: int,
    communicators: bool,
    kind: Kind | None,
    rank: int,
    every: int,
    us: float,
    factor: float,
    seed: int,
) -> None:
    """Make a run of many ranks in FOLDER."""
    delay = None
    if kind == "link":
        group = ("tp", rank // tp) if tp > 1 else ("dp", 0)
        delay = Delay(kind, every=every, group=group, factor=factor)
    elif kind:
        delay = Delay(kind, rank=rank, every=every, ns=round(1e3 * us))
    wanted = Wanted(
        report=report,
        ranks=ranks,
        kernels=int(kernels),
        tp=tp,
        communicators=communicators,
        delay=delay,
        seed=seed,
    )
    truth = make_run(folder, wanted)
    click.echo(
        f"{truth['ranks']} ranks, {truth['kernels']:,} kernels each;"
        f" {truth['cost_step_ns'] / 1e3:.1f} us a step lost",
        err=True,
    )


if __name__ == "__main__":
    main()
