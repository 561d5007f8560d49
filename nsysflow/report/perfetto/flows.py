"""Flows: from each launch to its operations, and from what is to blame to each gap."""

from dataclasses import dataclass
from typing import Self

import polars as pl

from nsysflow.analysis.tracks.tracks import Tracks

_FLOW = pl.UInt64


@dataclass(frozen=True, kw_only=True)
class Flows:
    """The flows of a report. Each has a number of its own, and begins and ends once.

    Attributes:
        of_calls: the flows that begin at each call, a list or null.
        of_operations: the same at each operation.
        into_operations: the flow that ends at each operation, or null.
        into_gaps: the flow that ends at each gap, or null.
        last: the highest number.
    """

    of_calls: pl.Series
    of_operations: pl.Series
    into_operations: pl.Series
    into_gaps: pl.Series
    last: int

    @classmethod
    def of(cls, tracks: Tracks, first: int) -> Self:
        """The flows of a picture, numbered from `first`. None goes back in time: where clocks
        disagree so much, an arrow would say the opposite."""
        calls, ops, gaps = tracks.calls, tracks.operations, tracks.gaps
        launched = calls["start_ns"].gather(ops["call"]) <= ops["start_ns"]
        into_ops = _numbered(launched, first)
        blamed = pl.select(
            pl.coalesce(
                calls["start_ns"].gather(gaps["culprit_call"]),
                ops["start_ns"].gather(gaps["culprit_op"]),
            )
        ).to_series()
        into_gaps = _numbered(blamed <= gaps["end_ns"], first + len(ops))
        from_calls = [(ops["call"], into_ops), (gaps["culprit_call"], into_gaps)]
        no_call = gaps["culprit_op"].set(gaps["culprit_call"].is_not_null(), None)
        return cls(
            of_calls=_lists(from_calls, len(calls)),
            of_operations=_lists([(no_call, into_gaps)], len(ops)),
            into_operations=into_ops,
            into_gaps=into_gaps,
            last=first + len(ops) + len(gaps) - 1,
        )


def _numbered(known: pl.Series, first: int) -> pl.Series:
    """A number for each row, null where it is not known."""
    numbers = pl.int_range(first, first + len(known), dtype=_FLOW, eager=True)
    return pl.select(pl.when(known).then(numbers)).to_series().alias("flow")


def _lists(ends: list[tuple[pl.Series, pl.Series]], rows: int) -> pl.Series:
    """The flows of each of `rows` rows, from pairs of a row and its flow."""
    flat = pl.concat(
        pl.DataFrame([at.cast(pl.UInt32).alias("row"), flow.alias("flow")]) for at, flow in ends
    )
    grouped = flat.drop_nulls().group_by("row").agg("flow")
    every = pl.DataFrame({"row": pl.int_range(rows, dtype=pl.UInt32, eager=True)})
    return every.join(grouped, on="row", how="left", maintain_order="left")["flow"]
