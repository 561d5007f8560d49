"""Where the time of a bottleneck goes: in which range, and at which line."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.bottleneck.bottlenecks import HOST, Bottleneck
from nsysflow.report.layout import printable, shorten
from nsysflow.report.results import Results, or_outside
from nsysflow.report.source_lines import line_at

_ONE_PLACE: Final = 0.5
"""A place with this share of the time is named."""


def parts_of(results: Results, devices: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The time in these columns by place: `where`, `culprit`, `source`, `times`, `total_ns`, and
    the `direction` of exposed copies."""
    causes = [column.removesuffix("_ns") for column in columns]
    idle = results.table("gap_summary").filter(pl.col("cause").is_in(causes))
    parts = [
        idle.join(devices, on=["report", "device"], how="semi").select(
            or_outside("phase").alias("where"),
            *("culprit", "source"),
            pl.lit(None, pl.String).alias("direction"),
            pl.col("gaps").alias("times"),
            "total_ns",
        )
    ]
    if "copy_exposed_ns" in columns:
        parts.append(_exposed_copies(results, devices))
    return pl.concat(parts, how="diagonal")


def _exposed_copies(results: Results, devices: pl.DataFrame) -> pl.DataFrame:
    """Exposed copies by place. Copies that ran at the same time share their exposed time, all of
    which each row of `copies` contains."""
    key = ["report", "device"]
    whole = devices.select(*key, "copy_exposed_ns")
    copies = results.table("copies").join(whole, on=key)
    together_ns = pl.max_horizontal(pl.col("exposed_ns").sum().over(key), "copy_exposed_ns", 1)
    share = pl.col("exposed_ns") * (pl.col("copy_exposed_ns") / together_ns)
    return copies.select(
        or_outside("phase").alias("where"),
        pl.lit("").alias("culprit"),
        "direction",
        pl.col("count").alias("times"),
        share.round().cast(pl.Int64).alias("total_ns"),
    )


def place_of(results: Results, parts: pl.DataFrame, lost_ns: int) -> tuple[str, int]:
    """The innermost place with half of the time, and how much is there; empty where there is none
    but an outermost range, which says nothing new."""
    depths = dict(results.table("phases").select("path", "depth").iter_rows())
    held_ns: dict[str, int] = defaultdict(int)
    for where, ns in parts.group_by("where").agg(pl.col("total_ns").sum()).iter_rows():
        held_ns[where] += ns
        names = where.split("/")
        for count in range(1, len(names)):
            outer = "/".join(names[:count])
            if depths.get(outer, 0) > 1:
                held_ns[outer] += ns
    most = [(where, ns) for where, ns in held_ns.items() if ns > 0 and ns >= _ONE_PLACE * lost_ns]
    return min(most, key=lambda held: (-depths.get(held[0], 0), -held[1], held[0]), default=("", 0))


def within(where: str) -> pl.Expr:
    """Whether a part is at this place, or in a range nested in it."""
    return (pl.col("where") == where) | pl.col("where").str.starts_with(f"{where}/")


def placed(bottleneck: Bottleneck, where: str, *, apart: bool, between: bool) -> str:
    """` in step/data`, ` outside any range, between the steps`: follows on what happens.

    Args:
        bottleneck: what happens.
        where: its place.
        apart: whether it is before or after the steps.
        between: whether there are steps that it can be between.
    """
    place = f" in {shorten(printable(where), 60)}" if where else ""
    if where == OUTSIDE:
        place = " outside any range"
    if apart:
        return f"{place}{',' if place else ''} before or after the steps"
    if between and bottleneck is HOST and where == OUTSIDE:
        return f"{place}, between the steps"
    return place


def there(here: pl.DataFrame, bottleneck: Bottleneck, where: str) -> str:
    """` in step/data, at train.py:42 in step`: follows on what to do."""
    if not where:
        return ""
    line = _line(here, bottleneck)
    if where == OUTSIDE:
        return f" {line}" if line else " there"
    place = f" in {shorten(printable(where), 60)}"
    return f"{place}, {line}" if line else place


def _line(parts: pl.DataFrame, bottleneck: Bottleneck) -> str:
    """`at train.py:42 in step` where most of the time is at one line, `before train.py:42` of host
    code; else empty."""
    named = parts.drop_nulls("source") if "source" in parts.columns else parts.clear()
    line = largest(named, "source") if not named.is_empty() else ""
    ns = int(named.filter(pl.col("source") == line)["total_ns"].sum()) if line else 0
    if not line or ns < _ONE_PLACE * int(parts["total_ns"].sum()):
        return ""
    shown = printable(line)
    return line_at("host", "", shown) if bottleneck is HOST else f"at {shown}"


def largest(parts: pl.DataFrame, key: str) -> str:
    """The key with the most time; empty where there is none."""
    sums = parts.group_by(key).agg(pl.col("total_ns").sum())
    return next(iter(sums.sort("total_ns", key, descending=[True, False])[key]), "")
