"""Runs of many ranks whose tables are written by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nsysflow import Analysis
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from tests.report.handmade import MS, Results, frame, training

Rows = Sequence[Mapping[str, Any]]

STEP_NS = 10 * MS


def run_of(*, many: bool = True, analysis: Analysis | None = None, **tables: Rows) -> RealResults:
    """A run with these tables of its ranks; the rest is of one report, by default by hand."""
    kind, one = (RealResults, analysis) if analysis else (Results, training())
    ranks = Ranks.of([one.digest] * 2) if many else None
    report = one.trace.report
    origin = Origin(ranks=True, paths={report: Path(report)})
    run = kind([one], ranks=ranks, origin=origin)
    frames = {name: frame(name, *map(dict, rows)) for name, rows in tables.items()}
    for part in (run, run.judged):
        part._tables |= frames
    return run


def ranks(count: int) -> Rows:
    """RANKS: rank 8 is on GPU 0 again."""
    return [{"rank": at, "report": f"rank{at}", "device": at % 8} for at in range(count)]


def steps(count: int, each: int, late: Mapping[int, Sequence[int]] | None = None) -> Rows:
    """RANK_STEPS of ranks that compute 8 ms of each step; late ones 9 ms in their steps, in which
    the others wait."""
    found = []
    for rank in range(count):
        for step in range(each):
            mine = 9 if late and step in late.get(rank, ()) else 8
            found.append(
                {
                    "rank": rank,
                    "report": f"rank{rank}",
                    "device": rank % 8,
                    "step": step,
                    "duration_ns": STEP_NS,
                    "compute_ns": mine * MS,
                    "comm_exposed_ns": STEP_NS - mine * MS,
                    "cost_ns": (mine - 8) * MS,
                }
            )
    return found


def group(**columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: all of 64 ranks, of which rank 37 costs a tenth of each of 20 steps.
    What the run would save is not known."""
    straggler = {"rank": 37, "report": "rank37", "device": 5, "times_last": 200}
    cost = {"steps": 20, "steps_last": 20, "cost_ns": 20 * MS, "cost_step_ns": MS}
    saved = {"saved_step_ns": None}
    late = {"late_ns": 21 * MS, "cost_work_ns": 20 * MS, "cost_host_ns": MS}
    of = {"kind": "all", "ranks": 64, "members": "0-63", "collectives": 200, "through": None}
    return {**of, **straggler, **cost, **saved, **late, **columns}


def many(analysis: Analysis | None = None) -> RealResults:
    """A run of 64 ranks in two groups, with a straggler, an outlier and a known link."""
    outlier = {"rank": 37, "report": "rank37", "part": "compute", "ns": 9 * MS, "median_ns": 8 * MS}
    link = {"kind": "all", "operation": "ncclAllReduce", "bytes": 1 << 25, "count": 9}
    speed = {"done_ns": 160_000, "bus_bytes_per_s": 4e11, "slow_ns": None, "peak_pct": None}
    return run_of(
        analysis=analysis,
        ranks=ranks(64),
        rank_groups=[group(), group(group=1, kind="TP", ranks=8, members="0-7", cost_step_ns=0)],
        rank_steps=steps(64, 20, {37: range(20)}),
        rank_outliers=[outlier],
        bandwidth=[link | speed],
    )
