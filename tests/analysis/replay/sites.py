"""The sites of simulated programs: what their removal saves, really and by the replay.

tests/data/simulated.tar.xz holds the truth about each site: what is saved if its calls take no time
(stall), its host code takes none (host) or its launches are one graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final

import polars as pl

from nsysflow.analysis.frames.intervals import Cover
from nsysflow.analysis.replay.apply import Baseline, changed
from nsysflow.analysis.replay.changes import CallKey, Changes, graph_rows, with_graphs
from nsysflow.analysis.replay.replay import Recorded, recorded, replay
from nsysflow.analysis.selection.timeline import Timeline
from tests.analysis.test_simulated import simulated

NOWHERE: Final = Cover(pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}))
CONTROLS: Final = ("harmless_sync", "deep_queue")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A site of a program, a `stall`, `host` or `graph`: what its removal really saves of the
    program's window, which is nothing in a control, and what the replay says."""

    program: str
    name: str
    kind: str
    control: bool
    saves_ns: int
    said_ns: int
    window_ns: int

    @property
    def hit(self) -> bool:
        """Whether the replay says what is saved."""
        return is_hit(self.said_ns, self.saves_ns, self.window_ns)


def is_hit(said_ns: int, saves_ns: int, window_ns: int) -> bool:
    """Whether it is within 10 % of the saving or 1 % of the window."""
    return abs(said_ns - saves_ns) <= max(0.1 * abs(saves_ns), 0.01 * window_ns)


@cache
def sites() -> list[Site]:
    """Every site of every program."""
    analyses, truth = simulated()
    return [
        site
        for name, about in truth.items()
        for site in _sites(name, analyses[name].timeline, about)
    ]


def _sites(program: str, timeline: Timeline, about: dict[str, Any]) -> Iterator[Site]:
    recording, window_ns = recorded(timeline), about["window"]
    for name, of in about["sites"].items():
        calls = [start for start, _, site in about["calls"] if site == name]
        yield Site(
            program=program,
            name=name,
            kind=of["kind"],
            control=about["class"] in CONTROLS or name == "last",
            saves_ns=of["saving"],
            said_ns=window_ns - _after(timeline, recording, name, of, calls),
            window_ns=window_ns,
        )


def _after(
    timeline: Timeline, recording: Recorded, name: str, of: dict[str, Any], calls: list[int]
) -> int:
    """The window after the site's change."""
    baseline = Baseline.as_recorded(timeline, recording)
    if of["kind"] == "graph":
        runs = _runs(timeline, calls, of["ops"])
        rows = graph_rows(recording.program, runs, NOWHERE, timeline.events.axis)
        program = with_graphs(recording.program, rows)
    elif calls:
        changes = Changes(removed_calls=tuple(_keys(timeline, calls)))
        program = changed(baseline, changes)
    else:
        program = changed(baseline, Changes(faster_host=((name, 0.0),)))
    ops = replay(program).ops
    return int(ops.select(pl.max("end_ns") - pl.min("start_ns")).item())


def _keys(timeline: Timeline, calls: list[int]) -> Iterator[CallKey]:
    """The keys of calls by their start."""
    of = timeline.events.calls.filter(pl.col("start_ns").is_in(calls))
    rows = of.join(timeline.events.threads, on="thread_no").select("process", "thread", "start_ns")
    yield from (CallKey(*row) for row in rows.iter_rows())


def _runs(timeline: Timeline, calls: list[int], counts: list[int]) -> pl.Series:
    """Per operation the run of launches that it is in."""
    launched = iter(calls)
    run = {start: i for i, count in enumerate(counts) for start in islice(launched, count)}
    begun = timeline.events.ops["launch_start_ns"]
    return begun.replace_strict(run, default=None, return_dtype=pl.UInt32)
