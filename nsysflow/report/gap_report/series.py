"""The idle time of every step, by place and cause, from the tables of a run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.declared.causes import DECLARED
from nsysflow.analysis.findings.finding import in_function
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.results import Results

LAUNCHING: Final = "launching"
"""All that it takes until the next operation runs, unless a call blocks the host. A faster CPU
turns one of its causes into another; their sum is steady where they are not."""

WAITING: Final = "waiting"
"""Waiting in a sync or a copy. To read a value back is a copy and a sync, of which now the one
blocks, now the other."""

_GROUPS: Final = {
    **dict.fromkeys(("host", "launch", "api", "queue_delay"), LAUNCHING),
    **dict.fromkeys(("sync", "blocking_copy"), WAITING),
}
"""The causes that rows take together; others stand alone."""

_NAMED: Final = frozenset(cause.name for cause in DECLARED if cause.kind in ("stall", "call"))
"""The causes of single calls: their line is recorded, not sampled."""

_TRACK: Final = ("report", "process", "device")


@dataclass(frozen=True, order=True)
class Place:
    """What a row is about.

    Attributes:
        phase: where the host was.
        cause: a cause, `LAUNCHING` or `WAITING`.
        function: the function of the blamed call, as `step (train.py)`; empty where none is known.
    """

    phase: str
    cause: str
    function: str = ""


Part = tuple[str, str]
"""What a row consists of: a cause, and the call that is blamed; empty where none is."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """One process on one GPU.

    Attributes:
        gpu: the GPU's name.
        has_steps: whether these are steps, and not one whole window.
        step_ns: how long each step takes.
        idle_ns: for each place the idle time in each step, by its parts.
    """

    gpu: str
    has_steps: bool
    step_ns: Sequence[int]
    idle_ns: Mapping[Place, Mapping[Part, Sequence[int]]]


def tracks_of(results: Results) -> list[Track]:
    """The processes and GPUs of a run, with their steady steps."""
    gpus = dict(_gpu_names(results))
    parts = pl.concat(
        _in_typical_steps(each.step_parts, each.steps) for each in results.analyses
    ).with_columns(pl.col("step").rank("dense").over(_TRACK).fill_null(1) - 1)
    by_track = parts.group_by(_TRACK, maintain_order=True)
    return [_track(gpus[key[0], key[2]], rows) for key, rows in by_track]


def _gpu_names(results: Results) -> Iterator[tuple[tuple[str, int], str]]:
    for report, device, name in results.table("accounting")["report", "device", "name"].rows():
        yield (report, device), name or "unknown GPU"


def _in_typical_steps(parts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows of steady steps; of a process and GPU without any, of all its steps."""
    key = [*_TRACK, "step"]
    marked = parts.join(steps.select(*key, "steady"), on=key, how="left", maintain_order="left")
    steady = pl.col("steady").fill_null(value=False)
    some = steady.any().over(_TRACK)
    return marked.with_columns(pl.col("process").is_not_null().alias("has_steps")).filter(
        steady | ~some
    )


def _track(gpu: str, rows: pl.DataFrame) -> Track:
    step_ns = rows.group_by("step").agg(pl.col("ns").sum()).sort("step")["ns"].to_list()
    idle = rows.filter(pl.col("part") == "idle")
    what = ("phase", "kind", "name", "source", "via")
    sums = idle.group_by(*what, "step").agg(pl.col("ns").sum())
    found: dict[Place, dict[Part, list[int]]] = defaultdict(dict)
    for row in sums.iter_rows(named=True):
        part = (row["kind"], row["name"] if row["kind"] in _NAMED else "")
        series = found[_place(row)].setdefault(part, [0] * len(step_ns))
        series[row["step"]] += row["ns"]
    return Track(gpu=gpu, has_steps=rows["has_steps"][0], step_ns=step_ns, idle_ns=found)


def _place(row: Mapping[str, Any]) -> Place:
    cause = row["kind"]
    called = cause in _NAMED
    function = in_function(row["source"] or row["via"] or "") if called else ""
    return Place(row["phase"] or OUTSIDE, _GROUPS.get(cause, cause), function)
