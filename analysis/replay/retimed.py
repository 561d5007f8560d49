"""The trace as it would have been: events at the times of a replay."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, last_at_or_before
from nsysflow.analysis.frames.lookup import by_number, greatest
from nsysflow.analysis.replay.dependencies.program import Program, Recorded
from nsysflow.analysis.replay.replay import Times
from nsysflow.analysis.timeline.events import Events


def retimed(events: Events, recorded: Recorded, program: Program, times: Times) -> Events:
    """`events` at the times of a replay, with the calls and launches of the program replayed.

    Args:
        events: as recorded.
        recorded: their program.
        program: what was replayed.
        times: its replay.
    """
    clock = _Clock(events.axis, recorded.program.calls, times.calls)
    calls = _calls(events.calls, recorded, program, times, clock)
    overhead = clock.moved(events.overhead).sort("start_ns", -pl.col("end_ns"), maintain_order=True)
    ops = _ops(events.ops, recorded, program, times, calls)
    spans = [frame.select("start_ns", "end_ns") for frame in (ops, calls, overhead)]
    extent = pl.concat(spans).select(first=pl.min("start_ns"), last=pl.max("end_ns")).row(0)
    axis = _axis_of(events.axis, *extent)
    place = axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    ops = ops.with_columns(place).sort("place", maintain_order=True)
    ops = ops.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("op"))
    return replace(
        events, axis=axis, ops=ops, calls=calls, overhead=overhead, last_ns=extent[1] or 0
    )


def _axis_of(axis: Axis, first_ns: int | None, last_ns: int | None) -> Axis:
    """An axis long enough for the times of the replay, with the tracks as far apart."""
    first = min(axis.origin_ns, first_ns if first_ns is not None else axis.origin_ns)
    last = last_ns if last_ns is not None else first
    return Axis(origin_ns=first, stride_ns=max(axis.stride_ns, last - first + axis.stride_ns))


class _Clock:
    """When what lies between the calls of a thread, or inside one, happens in a replay."""

    def __init__(self, axis: Axis, calls: pl.DataFrame, times: pl.DataFrame) -> None:
        """Set the clock by the start and end of every call of the program."""
        self.axis = axis
        thread = calls["thread_no"]
        sides = [
            pl.DataFrame({"thread_no": thread, "was_ns": calls[side], "is_ns": times[side]})
            for side in ("start_ns", "end_ns")
        ]
        place = axis.at(pl.col("thread_no"), pl.col("was_ns")).alias("place")
        marks = pl.concat(sides).with_columns(place).sort("place", maintain_order=True)
        same = pl.col("thread_no").shift(-1) == pl.col("thread_no")
        room = pl.when(same).then(pl.col("is_ns").shift(-1) - pl.col("is_ns"))
        self.marks = marks.with_columns(room.clip(lower_bound=0).alias("room_ns"))
        last_to_first = self.marks.reverse()
        numbers = last_to_first["thread_no"]
        moved_ns = last_to_first["is_ns"] - last_to_first["was_ns"]
        self.first_moved_ns = by_number(greatest(numbers) + 1, numbers, moved_ns)

    def moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of threads with the `start_ns` and `end_ns` of the replay."""
        start, end = (self._time(rows["thread_no"], rows[side]) for side in ("start_ns", "end_ns"))
        end = pl.select(pl.max_horizontal(start, end)).to_series()
        return rows.with_columns(start.alias("start_ns"), end.alias("end_ns"))

    def _time(self, thread: pl.Series, time_ns: pl.Series) -> pl.Series:
        asked = pl.DataFrame({"thread_no": thread, "time_ns": time_ns})
        place = asked.select(self.axis.at(pl.col("thread_no"), pl.col("time_ns"))).to_series()
        mark = last_at_or_before(self.marks["place"], place)
        found = self.marks.select(pl.all().gather(mark)).rename({"thread_no": "of"})
        since = pl.min_horizontal(pl.col("time_ns") - pl.col("was_ns"), "room_ns")
        moved = pl.when(pl.col("of") == pl.col("thread_no")).then(pl.col("is_ns") + since)
        # what lies before a thread's first call keeps its distance from that
        early = self.first_moved_ns.gather(thread, null_on_oob=True).fill_null(0)
        return asked.hstack(found).select(moved.fill_null(pl.col("time_ns") + early)).to_series()


def _calls(
    calls: pl.DataFrame, recorded: Recorded, program: Program, times: Times, clock: _Clock
) -> pl.DataFrame:
    """All calls: those of the program as replayed, others by the clock. A call in one that was
    changed is of the class that that one is of now."""
    node = recorded.node_of_call
    was, now = (of.calls["class"].gather(node) for of in (recorded.program, program))
    changed = (was != now).fill_null(value=False)
    known = program.calls["call"]
    others = pl.repeat(value=True, n=len(calls), eager=True).scatter(known, values=False)
    moved = clock.moved(calls.filter(others).select("call", "thread_no", "start_ns", "end_ns"))
    return calls.with_columns(
        pl.when(pl.lit(changed)).then(pl.lit(now)).otherwise("class").alias("class"),
        *(
            calls[side].scatter(known, times.calls[side]).scatter(moved["call"], moved[side])
            for side in ("start_ns", "end_ns")
        ),
    )


def _ops(
    ops: pl.DataFrame, recorded: Recorded, program: Program, times: Times, calls: pl.DataFrame
) -> pl.DataFrame:
    """All operations as replayed, with the calls that launch them now."""
    node = program.ops["node"]
    moved = (node != recorded.program.ops["node"]).fill_null(value=False)
    call = pl.select(
        pl.when(pl.lit(moved)).then(program.calls["call"].gather(node)).otherwise(ops["call"])
    ).to_series()
    return ops.with_columns(
        call.alias("call"),
        calls["thread_no"].gather(call),
        calls["start_ns"].gather(call).alias("launch_start_ns"),
        calls["end_ns"].gather(call).alias("launch_end_ns"),
        times.ops["start_ns"],
        times.ops["end_ns"],
    )
