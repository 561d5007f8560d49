"""What one partition hands to the next, under names that both know."""

from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from nsysflow.analysis.gaps.charged_stalls import HOST, LOOKED, REST, Standing
from nsysflow.analysis.timeline.events import Events

_NAMES: Final = {
    "device_no": ("device", pl.Int32()),
    "process_no": ("process", pl.Int64()),
    "thread_no": ("thread", pl.Int64()),
    "other_no": ("other", pl.Int64()),
}
"""What the numbers of a partition stand for."""


def _named(schema: pl.Schema) -> pl.Schema:
    return pl.Schema([_NAMES.get(name, (name, dtype)) for name, dtype in schema.items()])


_SCHEMAS: Final = {"looked": LOOKED, "rest": REST, "host": HOST}


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Where a report stands between two partitions.

    Attributes:
        looked: `gaps.charged_stalls.Standing`, with `device`, `process`, `thread` and `other` (the
            keys of the report) for their numbers.
        rest: likewise.
        host: likewise.
        gaps: `device`, `gaps`: how many each device has had.
    """

    looked: pl.DataFrame
    rest: pl.DataFrame
    host: pl.DataFrame
    gaps: pl.DataFrame

    @classmethod
    def at_the_start(cls) -> Self:
        """Before the first partition."""
        return cls(
            **{name: _named(schema).to_frame() for name, schema in _SCHEMAS.items()},
            gaps=pl.DataFrame(schema={"device": pl.Int32(), "gaps": pl.Int64()}),
        )

    def numbered(self, events: Events) -> Standing:
        """As the partition of `events` numbers it; what it has no number for is left out."""
        return Standing(
            **{
                name: _with_numbers(getattr(self, name), events).match_to_schema(schema)
                for name, schema in _SCHEMAS.items()
            }
        )

    def after(self, standing: Standing, events: Events, gaps: pl.DataFrame) -> Self:
        """Behind the partition of `events`, which left `standing` and had `gaps`."""
        devices = _devices(events)
        counted = gaps.join(devices, on="device_no").group_by("device").len("gaps")
        counted = counted.with_columns(pl.col("gaps").cast(pl.Int64))
        sums = pl.concat([self.gaps, counted]).group_by("device").agg(pl.col("gaps").sum())
        frames = {}
        for name, schema in _SCHEMAS.items():
            before = getattr(self, name)
            known = _with_numbers(before.with_row_index("row"), events)
            elsewhere = before.with_row_index("row").join(known, on="row", how="anti").drop("row")
            now = _with_names(getattr(standing, name), events).match_to_schema(_named(schema))
            frames[name] = pl.concat([elsewhere, now])
        return type(self)(**frames, gaps=sums.sort("device"))


def _devices(events: Events) -> pl.DataFrame:
    return events.ops.select("device_no", "device").unique("device_no")


def _keys(events: Events) -> list[tuple[str, str, pl.DataFrame]]:
    """Number, name, and the frame of both."""
    threads = events.threads.select("thread_no", "thread")
    return [
        ("device_no", "device", _devices(events)),
        ("process_no", "process", events.threads.select("process_no", "process").unique()),
        ("thread_no", "thread", threads),
        ("other_no", "other", threads.rename({"thread_no": "other_no", "thread": "other"})),
    ]


def _with_numbers(rows: pl.DataFrame, events: Events) -> pl.DataFrame:
    """`rows` with numbers for names; only those of which all are known."""
    for number, name, known in _keys(events):
        if name in rows.columns:
            rows = rows.join(known, on=name, how="left", maintain_order="left")
            rows = rows.filter(pl.col(number).is_not_null() | pl.col(name).is_null()).drop(name)
    return rows


def _with_names(rows: pl.DataFrame, events: Events) -> pl.DataFrame:
    for number, _, known in _keys(events):
        if number in rows.columns:
            rows = rows.join(known, on=number, how="left", maintain_order="left").drop(number)
    return rows
