"""What the timeline of the page draws: `about.timeline`, and its columns as blobs.

Times are ns on the page's axis. It starts where the first report does. The clocks of ranks are
aligned by the collectives that they have in common, as in the table `ranks`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.concepts import causes_in_full
from nsysflow.analysis.frames.lookup import by_number, greatest
from nsysflow.analysis.schema import CAUSE, STEP_KIND
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.html.packing import Blobs, Packed, packed, packed_deltas
from nsysflow.report.results import Analysed, Results

SCHEMA: Final = 1

_TABLE_OF: Final = {
    "steps": "steps",
    "phases": "ranges",
    "calls": "calls",
    "host_stack": "host_stacks",
    "profiler": "profiler",
    "stream": "operations",
    "gaps": "gaps",
    "counter": "counters",
}
"""The table that holds the rows of each kind of lane."""

_GROUPS: Final = {"communication": "communication", "memset": "copy", "graph": "compute"}
"""What classes of operations count as that are neither of kernels nor of copies."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a report lies on the page.

    Attributes:
        zero_ns: the report's time from which its columns count.
        origin_ns: where that is on the page.
        known: whether the clock is aligned with that of the first report.
    """

    zero_ns: int
    origin_ns: int
    known: bool


def timeline(results: Results, blobs: Blobs) -> dict[str, Any]:
    """`about.timeline`. Adds its columns to `blobs`."""
    tracks = [each.tracks for each in results.analyses]
    clocks = clocks_of(results, tracks)
    classes = _classes(tracks)
    reports = [
        _Report(each.tracks, clock.zero_ns, classes, blobs).about(each, clock)
        for each, clock in zip(results.analyses, clocks, strict=True)
    ]
    ends = [
        clock.origin_ns + end_of(each) - clock.zero_ns
        for each, clock in zip(tracks, clocks, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "start_ns": 0,
        "end_ns": max(ends, default=0),
        "reports": reports,
        "causes": [
            {
                "name": cause.name,
                "label": cause.label,
                "meaning": cause.meaning,
                "usual": causes_in_full()[cause.name].usual,
                "remedies": causes_in_full()[cause.name].remedies,
            }
            for cause in CAUSES.values()
        ],
        "classes": [{"name": name, "label": name, "group": group_of(name)} for name in classes],
        "call_classes": [{"name": cause.name, "label": cause.label} for cause in CAUSES.values()],
        "step_kinds": STEP_KIND.categories.to_list(),
    }


def group_of(name: str) -> str:
    """Whether a class of operations is compute, communication or a copy."""
    return _GROUPS.get(name, "copy" if name.startswith("copy ") else "compute")


def clocks_of(results: Results, tracks: Sequence[Tracks]) -> list[Clock]:
    """Where each report lies on the page (spec §22.5)."""
    ahead = _ahead(results)
    names = results.reports
    known = [name in ahead or index == 0 for index, name in enumerate(names)]
    begun = [start_of(each) for each in tracks]
    aligned = [start - ahead.get(name, 0) for name, start in zip(names, begun, strict=True)]
    first = min(start for start, is_known in zip(aligned, known, strict=True) if is_known)
    return [
        Clock(zero_ns=start, origin_ns=place - first if is_known else 0, known=is_known)
        for start, place, is_known in zip(begun, aligned, known, strict=True)
    ]


def _ahead(results: Results) -> dict[str, int]:
    """How far the clocks of the reports are ahead of the first one's, where that is known."""
    ranks = results.table("ranks").drop_nulls("clock_ns")
    return dict(ranks.select("report", "clock_ns").unique("report", keep="first").rows())


_TIMED: Final = ("operations", "calls", "ranges", "steps", "gaps", "profiler", "host_stacks")


def start_of(tracks: Tracks) -> int:
    """The first time of a report."""
    times = [getattr(tracks, name)["start_ns"].min() for name in _TIMED]
    return min((t for t in (*times, tracks.counters["time_ns"].min()) if t is not None), default=0)


def end_of(tracks: Tracks) -> int:
    """The last time of a report."""
    times = [getattr(tracks, name)["end_ns"].max() for name in _TIMED]
    return max((t for t in (*times, tracks.counters["time_ns"].max()) if t is not None), default=0)


def _classes(tracks: Sequence[Tracks]) -> list[str]:
    """The classes of operations in a run, by name."""
    found = pl.concat([each.operations["class"].unique().cast(pl.String) for each in tracks])
    return found.drop_nulls().unique().sort().to_list()


class _Names:
    """The strings of a report, each once; a kernel's short name once for each full name."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []
        self.full: list[str | None] = []

    def numbers(self, names: pl.Series) -> pl.Series:
        """The number of each name, from 0; null for null."""
        distinct = names.unique(maintain_order=True).drop_nulls()
        first = len(self.texts)
        self.texts += distinct.cast(pl.String).to_list()
        self.full += [None] * len(distinct)
        codes = names.to_physical()
        mine = distinct.to_physical()
        number = pl.int_range(first, first + len(distinct), dtype=pl.UInt32, eager=True)
        return by_number(greatest(mine) + 1, mine, number).gather(codes)

    def kernels(self, operations: pl.DataFrame) -> pl.Series:
        """The number of each operation's `name` and `full_name`."""
        key = ["name", "full_name"]
        distinct = operations.select(key).unique(maintain_order=True)
        short, full = (distinct[column].cast(pl.String).to_list() for column in key)
        number = pl.int_range(len(distinct), dtype=pl.UInt32, eager=True) + len(self.texts)
        self.texts += short
        self.full += [
            long if long != name else None for name, long in zip(short, full, strict=True)
        ]
        known = distinct.with_columns(number.alias("number"))
        return operations.select(key).join(
            known, on=key, how="left", maintain_order="left", nulls_equal=True
        )["number"]


class _Report:
    """One report's lanes and columns."""

    def __init__(self, tracks: Tracks, zero_ns: int, classes: Sequence[str], blobs: Blobs) -> None:
        self.tracks, self.zero_ns, self.classes, self.blobs = tracks, zero_ns, classes, blobs
        self.names = _Names()

    def about(self, analysis: Analysed, clock: Clock) -> dict[str, Any]:
        """REPORT of the page."""
        tables = {
            "operations": self._operations(),
            "calls": self._calls(),
            "ranges": self._slices(self.tracks.ranges),
            "steps": self._steps(),
            "gaps": self._gaps(),
            "profiler": self._slices(self.tracks.profiler),
            "host_stacks": self._slices(self.tracks.host_stacks),
            "counters": self._counters(),
        }
        return {
            "name": analysis.trace.report,
            "origin_ns": clock.origin_ns,
            "zero_ns": str(clock.zero_ns),
            "clock_known": clock.known,
            "selection": selection_of(analysis, clock),
            "lanes": self._lanes(),
            "tables": tables,
            "paths": self.tracks.paths["name"].to_list(),
            "strings": self.blobs.add(msgspec.json.encode(self.names.texts)),
            "full_names": self.blobs.add(msgspec.json.encode(self.names.full)),
        }

    def _lanes(self) -> list[dict[str, Any]]:
        first = {}
        for table in _TABLE_OF.values():
            lane = getattr(self.tracks, table)["lane"]
            runs = lane.rle().struct.unnest() if len(lane) else None
            at = 0
            for count, number in runs.rows() if runs is not None else ():
                first[number] = (at, count)
                at += count
        found = []
        for row in self.tracks.lanes.iter_rows(named=True):
            number = row.pop("lane")
            at, count = first[number]
            found.append({**row, "first": at, "count": count})
        return found

    def _columns(self, n: int, columns: Mapping[str, Packed | None]) -> dict[str, Any]:
        there = {name: self.blobs.column(each) for name, each in columns.items() if each}
        return {"n": n, "columns": there}

    def _times(self, rows: pl.DataFrame) -> dict[str, Packed | None]:
        return {
            "start": packed_deltas(rows["start_ns"] - self.zero_ns),
            "duration": packed(rows["end_ns"] - rows["start_ns"]),
        }

    def _slices(self, rows: pl.DataFrame) -> dict[str, Any]:
        columns = self._times(rows) | {"name": packed(self.names.numbers(rows["name"]))}
        if "depth" in rows.columns:
            columns["depth"] = packed(rows["depth"])
        return self._columns(len(rows), columns)

    def _operations(self) -> dict[str, Any]:
        rows = self.tracks.operations
        columns = {
            **self._times(rows),
            "name": packed(self.names.kernels(rows)),
            "class": packed(self._class(rows["class"])),
            "call": packed_deltas(_or_zero(rows["call"])),
            "phase": packed(_or_zero(rows["phase"])),
            "depth": packed(rows["depth"]),
            "bytes": packed(rows["bytes"].fill_null(0)),
        }
        return self._columns(len(rows), columns)

    def _class(self, classes: pl.Series) -> pl.Series:
        distinct = classes.unique()
        number = distinct.cast(pl.String).cast(pl.Enum(self.classes)).to_physical()
        codes = distinct.to_physical()
        return by_number(greatest(codes) + 1, codes, number).gather(classes.to_physical())

    def _calls(self) -> dict[str, Any]:
        rows = self.tracks.calls
        columns = {
            **self._times(rows),
            "name": packed(self.names.numbers(rows["name"])),
            "class": packed(rows["class"].to_physical()),
            "source": packed(_or_zero(self.names.numbers(rows["source"]))),
            "depth": packed(rows["depth"]),
        }
        return self._columns(len(rows), columns)

    def _steps(self) -> dict[str, Any]:
        rows = self.tracks.steps
        columns = {
            **self._times(rows),
            "step": packed(rows["step"]),
            "kind": packed(rows["kind"].to_physical()),
            "device": packed(rows["device"]),
        }
        return self._columns(len(rows), columns)

    def _gaps(self) -> dict[str, Any]:
        rows = self.tracks.gaps
        columns = {
            "prev_op": packed_deltas(rows["prev_op"]),
            "next_op": packed_deltas(rows["next_op"]),
            "cause": packed(rows["cause"].to_physical()),
            "culprit_call": packed_deltas(_or_zero(rows["culprit_call"])),
            "culprit_op": packed(_or_zero(rows["culprit_op"])),
            "phase": packed(_or_zero(rows["phase"])),
            **_parts(rows),
        }
        return self._columns(len(rows), columns)

    def _counters(self) -> dict[str, Any]:
        rows = self.tracks.counters
        columns = {
            "start": packed_deltas(rows["time_ns"] - self.zero_ns),
            "value": packed(rows["value_pct"]),
        }
        return self._columns(len(rows), columns)


def _or_zero(rows: pl.Series) -> pl.Series:
    """Row numbers from 1; 0 for none."""
    return (rows.cast(pl.Int64) + 1).fill_null(0)


def _parts(gaps: pl.DataFrame) -> dict[str, Packed | None]:
    """The causes of each gap but its largest: how many, then flat which and how much."""
    found = [
        gaps.select(pl.col("cause") != name, pl.col(f"{name}_ns").alias("ns"))
        .with_row_index("gap")
        .filter("cause", pl.col("ns") > 0)
        .select("gap", "ns", pl.lit(number, pl.UInt8).alias("number"))
        for number, name in enumerate(CAUSE.categories)
    ]
    flat = pl.concat(found).sort("gap", "number")
    counted = flat.group_by("gap").len()
    count = by_number(len(gaps), counted["gap"], counted["len"]).fill_null(0)
    return {
        "parts": packed(count),
        "part_cause": packed(flat["number"]),
        "part_ns": packed(flat["ns"]),
    }


def selection_of(analysis: Analysed, clock: Clock) -> list[list[int]]:
    """The selected parts of the report's time, on the page; empty for all of it."""
    windows = analysis.selected_ns
    shift = clock.origin_ns - clock.zero_ns
    return [[start + shift, end + shift] for start, end in windows]
