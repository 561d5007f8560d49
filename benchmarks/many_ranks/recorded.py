"""Read the usual step of a real report as a program (step.py)."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final

from benchmarks.many_ranks.step import (
    CALLS,
    KERNELS,
    MEMCPYS,
    MEMSETS,
    RANGES,
    Event,
    Op,
    Span,
    Step,
    Values,
)

STEP_RANGES: Final = ("step", "nsysflow.auto:step")

_WAITED_NS: Final = 5_000
"""A call that waits for the GPU takes at least this long."""

_LATE_NS: Final = 50_000
"""A call that ends later than this after an operation did not wait for it."""

_OWN_NS: Final = 2_000
"""What a call that waits takes itself."""


def read_step(db: sqlite3.Connection) -> Step:
    """The usual step of the rank that waits least for others, of an export.

    A collective takes as long as the shortest of its kind and place in the step.
    """
    strings = dict(db.execute("SELECT id, value FROM StringIds").fetchall())
    ops = list(_operations(db, strings))
    processes = {op["globalPid"] for op in ops}
    found = [_Process(db, strings, [op for op in ops if op["globalPid"] == p]) for p in processes]
    steps = [step for process in found for step in process.usual_steps()]
    lengths = [[_length_ns(op) for op in step if _communicates(op)] for step in steps]
    transfers = [min(of_place) for of_place in zip(*lengths, strict=True)]
    return min(found, key=_Process.communicating_ns).step(transfers)


def read_rows(db: sqlite3.Connection, query: str) -> list[Values]:
    """The rows of a query."""
    cursor = db.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _operations(db: sqlite3.Connection, strings: dict[int, str]) -> Iterator[Values]:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    for table in tables.intersection((KERNELS, MEMCPYS, MEMSETS)):
        for row in read_rows(db, f"SELECT * FROM {table}"):
            yield row | {"table": table, "name": strings.get(row.get("shortName", -1), table)}


def _communicates(row: Values) -> bool:
    return str(row["name"]).startswith("nccl")


def _length_ns(op: Values) -> int:
    return int(op["end"] - op["start"])


class _Process:
    """What a process recorded."""

    def __init__(self, db: sqlite3.Connection, strings: dict[int, str], ops: list[Values]) -> None:
        here = f"globalTid >> 24 = {ops[0]['globalPid'] >> 24}"
        self.calls = [
            row | {"name": strings[row["nameId"]]}
            for row in read_rows(db, f"SELECT * FROM {CALLS} WHERE {here} ORDER BY start")
        ]
        ended = "eventType = 59 AND end IS NOT NULL ORDER BY start"
        self.ranges = [
            row | {"name": row["text"] or strings.get(row["textId"], "")}
            for row in read_rows(db, f"SELECT * FROM {RANGES} WHERE {here} AND {ended}")
        ]
        calls = {call["correlationId"]: call for call in self.calls}
        launched = [
            op | {"call": calls[op["correlationId"]]} for op in ops if op["correlationId"] in calls
        ]
        self.ops = sorted(launched, key=lambda op: (op["call"]["start"], op["start"]))
        marks = [row["start"] for row in self.ranges if row["name"] in STEP_RANGES]
        self.steps = list(pairwise(marks))
        counts = Counter(len(self._launched(*step)) for step in self.steps)
        self.usual = counts.most_common(1)[0][0]

    def _launched(self, begin: int, end: int) -> list[Values]:
        return [op for op in self.ops if begin <= op["call"]["start"] < end]

    def usual_steps(self) -> Iterator[list[Values]]:
        """The operations of each step that has the usual number of them."""
        launched = (self._launched(*step) for step in self.steps)
        return (ops for ops in launched if len(ops) == self.usual)

    def communicating_ns(self) -> int:
        return sum(_length_ns(op) for op in self.ops if _communicates(op))

    def step(self, transfers: Sequence[int]) -> Step:
        """The usual step of median length; its collectives take `transfers`."""
        alike = [step for step in self.steps if len(self._launched(*step)) == self.usual]
        middle = median_low(end - begin for begin, end in alike)
        begin, end = next(step for step in alike if step[1] - step[0] == middle)
        events, spans = self._host(begin, end)
        lengths = iter(transfers)
        ops = [
            Op(
                op["table"],
                op,
                spans[id(op["call"])],
                op["streamId"],
                next(lengths) if _communicates(op) else _length_ns(op),
                (op["start"], op["end"]),
                "dp" if _communicates(op) else None,
            )
            for op in self._launched(begin, end)
        ]
        main_stream = Counter(op.stream for op in ops).most_common(1)[0][0]
        self._set_dependencies(ops, main_stream)
        self._set_waits(ops, spans, begin)
        return Step(events, list(spans.values()), ops, main_stream)

    def _host(self, begin: int, end: int) -> tuple[list[Event], dict[int, Span]]:
        """The events of the host, and its calls and ranges by the id of their row."""
        threads = {op["call"]["globalTid"] for op in self.ops}
        threads |= {row["globalTid"] for row in self.ranges}
        rows = [
            (table, row)
            for table, found in ((CALLS, self.calls), (RANGES, self.ranges))
            for row in found
            if begin <= row["start"] < end and row["globalTid"] in threads
        ]
        times = sorted(
            (min(row[side], end), row["start"], number, side)
            for number, (_, row) in enumerate(rows)
            for side in ("start", "end")
        )
        before = [begin, *(time_ns for time_ns, *_ in times)]
        events = [
            Event(time_ns - before_ns)
            for before_ns, (time_ns, *_) in zip(before, times, strict=False)
        ]
        at = {
            (number, side): event for event, (*_, number, side) in zip(events, times, strict=True)
        }
        spans = {
            id(row): Span(
                table,
                row,
                at[number, "start"],
                at[number, "end"],
                "dp" if table == RANGES and _communicates(row) else None,
            )
            for number, (table, row) in enumerate(rows)
        }
        return [*events, Event(end - before[-1])], spans

    def _set_dependencies(self, ops: Sequence[Op], main_stream: int) -> None:
        """Let operations wait for other streams, where the recorded times allow it.

        Those of side streams wait for what was launched last on the others. Those of the main
        stream wait for collectives, if the host had told it to wait.
        """
        for number, op in enumerate(ops):
            earlier = list(reversed(ops[:number]))
            if op.stream != main_stream:
                compute = [o for o in earlier if o.group is None and o.stream != op.stream]
                op.after = list(_ended(_first_of_stream(compute), op))
            elif number and self._told_to_wait(ops[number - 1].launch, op.launch):
                op.after = list(_first_of_stream(_ended((o for o in earlier if o.group), op)))

    def _told_to_wait(self, after: Span, before: Span) -> bool:
        """Whether the host told a stream to wait, outside NCCL, between two launches."""
        inside = [r for r in self.ranges if _communicates(r)]
        return any(
            after.values["start"] < call["start"] < before.values["start"]
            and "StreamWaitEvent" in call["name"]
            and not any(r["start"] <= call["start"] <= r["end"] for r in inside)
            for call in self.calls
        )

    def _set_waits(self, ops: Sequence[Op], spans: dict[int, Span], begin: int) -> None:
        """Let calls that wait for the GPU end after what they waited for, of this step or of the
        one before it."""
        here = {id(op.values): op for op in ops}
        first = next(n for n, op in enumerate(self.ops) if op["call"]["start"] >= begin)
        earlier = {
            id(row): op
            for row, op in zip(self.ops[max(0, first - len(ops)) : first], ops, strict=False)
        }
        copies = {id(op.launch): op for op in ops if op.table == MEMCPYS}
        for call in self.calls:
            span = spans.get(id(call))
            if span is None or _length_ns(call) < _WAITED_NS:
                continue
            own = copies.get(id(span))
            if "Synchronize" not in call["name"] and (
                own is None or own.recorded_ns[1] > call["end"]
            ):
                continue
            ended = [
                op
                for op in self.ops
                if op["call"]["start"] < call["end"] and op["end"] <= call["end"]
            ]
            last = max(ended, key=lambda op: op["end"], default=None)
            if last is None or call["end"] - last["end"] > _LATE_NS:
                continue
            span.end.awaits = here.get(id(last)) or earlier.get(id(last))
            if span.end.awaits is not None:
                span.end.steps_ago = int(id(last) in earlier)
                span.end.after_ns = call["end"] - last["end"]
                span.end.gap_ns = min(span.end.gap_ns, _OWN_NS)


def _ended(ops: Iterable[Op], by: Op) -> Iterator[Op]:
    """Those that had ended when `by` started."""
    return (op for op in ops if op.recorded_ns[1] <= by.recorded_ns[0])


def _first_of_stream(ops: Iterable[Op]) -> Iterator[Op]:
    """The first one of each stream."""
    seen: set[int] = set()
    for op in ops:
        if op.stream not in seen:
            seen.add(op.stream)
            yield op
