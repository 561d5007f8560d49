"""What is computed of whole columns: look-ups by number, and statistics.

A look-up in a table by number is a gather, which is cheaper than a join. `column[rows]` and
`frame[names]` take 5 and 25 us; `column.gather(rows)` and `frame.select(names)` plan a query, which
takes 100 us. A small report is made of thousands of those.

Means, medians and percentiles are as the spec defines them: whole ns, interpolated linearly.
"""

from collections.abc import Callable, Hashable
from typing import Any

import polars as pl


def greatest(numbers: pl.Series) -> int:
    """The maximum of `numbers`; 0 if there are none."""
    most = numbers.max()
    return most if isinstance(most, int) else 0


def repeated(
    value: object, length: int, dtype: pl.DataType | type[pl.DataType] | None = None
) -> pl.Series:
    """A value so many times. `pl.repeat` plans a query: 150 us, and this takes 14 us."""
    return pl.Series([value], dtype=dtype).new_from_index(0, length)


def scatter_table(size: int, numbers: pl.Series, values: pl.Series) -> pl.Series:
    """A table of `size` rows with `values` in the rows `numbers`, null elsewhere.

    A gather from it takes a fifth of a hash join. If a number has several values, the last is kept.
    """
    return repeated(None, size, values.dtype).scatter(numbers, values)


def distinct(rows: pl.DataFrame) -> pl.DataFrame:
    """The distinct rows of a frame in which most rows are like the one before, such as the devices
    of operations.

    Only rows that differ from the one before are hashed: 1 ms for 1.0 M rows, and 18 ms for all.
    """
    differs = [column.ne_missing(column.shift(1)) for column in rows.iter_columns()]
    if not differs:
        return rows
    changes = pl.select(pl.any_horizontal(differs)).to_series()
    return pl.concat([rows.head(1), rows.filter(changes)]).unique(maintain_order=True)


MOST_STRETCHES = 64
"""With more pieces, to read a frame costs more than to copy it."""


def filter_runs(rows: pl.DataFrame, kept: pl.Series) -> pl.DataFrame:
    """The rows that are `kept`. Where these are a few stretches, they share the memory of `rows`:
    steady steps are most of a long report."""
    if kept.sum() == len(kept):
        return rows
    runs = kept.rle().struct.unnest().with_columns(pl.col("len").cum_sum().alias("past"))
    runs = runs.filter("value")
    if not 0 < len(runs) <= MOST_STRETCHES:
        return rows.filter(kept)
    stretches = runs.select(pl.col("past") - pl.col("len"), "len").rows()
    return pl.concat([rows.slice(first, length) for first, length in stretches], rechunk=False)


def number_in(keys: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """For each of `rows`, which row of `keys` has the same values; null if none has.

    The rows of `keys` are distinct. A single one needs no join.
    """
    if len(keys) == 1:
        same = [pl.col(name) == value for name, value in keys.row(0, named=True).items()]
        number = pl.when(pl.all_horizontal(same)).then(pl.lit(0, pl.UInt32))
        return rows.select(number.alias("number")).to_series()
    asked, known = rows.select(keys.columns), keys.with_row_index("number")
    return asked.join(known, on=keys.columns, how="left", maintain_order="left")["number"]


def dense(codes: pl.Series) -> pl.Series:
    """`codes` numbered from 0 in their own order."""
    return codes.unique().sort().search_sorted(codes)


def enum_from_index(number: pl.Series, dtype: pl.Enum) -> pl.Series:
    """The words of an Enum by their number.

    A `when` that chooses numbers, followed by this, takes a sixth of one that chooses words: 11 ms
    and 67 ms for 1.0 M rows (2-core VM, 2026-11-20).
    """
    return pl.Series(number.name, dtype.categories, dtype=dtype)[number.cast(pl.UInt32)]


class DescribedRows:
    """Describes rows of names, each row once in a process.

    Compiling 30 patterns takes 15 ms, longer than matching the names of a report.
    """

    def __init__(self, describe: Callable[..., pl.DataFrame], schema: pl.Schema) -> None:
        """Take a function that gives a row of `schema` for each row, by these settings."""
        self._describe = describe
        self._schema = schema
        self._known: dict[Hashable, dict[tuple[Any, ...], tuple[Any, ...]]] = {}

    def of(self, names: pl.DataFrame, *settings: Hashable) -> pl.DataFrame:
        """The description of each of these rows."""
        known = self._known.setdefault(settings, {})
        rows = names.rows()
        if unknown := {*rows} - known.keys():
            asked = pl.DataFrame([*unknown], names.schema, orient="row")
            known.update(zip(asked.rows(), self._describe(asked, *settings).rows(), strict=True))
        return pl.DataFrame([known[row] for row in rows], self._schema, orient="row")


def matching(names: pl.Series, pattern: str) -> pl.Series:
    """Whether each of the categories `names` matches. Each distinct name is tested once."""
    known = names.unique()
    matching = known.filter(known.cast(pl.String).str.contains(pattern))
    if matching.is_empty() and not names.null_count():
        return repeated(value=False, length=len(names))
    return names.is_in(matching.implode())


def whole_ns(value: pl.Expr) -> pl.Expr:
    """Rounded to whole nanoseconds, halves to even."""
    return value.round(0, mode="half_to_even").cast(pl.Int64)


def median_ns(value: pl.Expr) -> pl.Expr:
    """Median of integer nanoseconds, rounded."""
    return whole_ns(value.median())


def p95_ns(value: pl.Expr) -> pl.Expr:
    """95th percentile of integer nanoseconds, interpolated linearly, rounded.

    In whole numbers, since a float can miss the half by an ulp and round to the wrong side. No step
    is larger than the values themselves, which may need all 63 bits.
    """
    low, high = (
        value.quantile(0.95, interpolation=side).cast(pl.Int64) for side in ("lower", "higher")
    )
    apart, share = high - low, 95 * (value.count().cast(pl.Int64) - 1) % 100
    beyond = apart % 100 * share
    floor, rest = low + apart // 100 * share + beyond // 100, beyond % 100
    up = (rest > 50) | ((rest == 50) & (floor % 2 == 1))
    return floor + up.cast(pl.Int64)


def std_ns(value: pl.Expr) -> pl.Expr:
    """Standard deviation of the sample (n - 1), rounded; null for fewer than two values.

    Squares are summed in 128 bits: the square of 3 s passes 2**63.
    """
    count = value.count().cast(pl.Int128)
    off = (value - value.min()).cast(pl.Int128)
    squares = count * (off * off).sum() - off.sum() * off.sum()
    variance = squares.cast(pl.Float64) / (count * (count - 1)).cast(pl.Float64)
    return whole_ns(pl.when(count > 1).then(variance.sqrt()))


def spread(value: pl.Expr) -> list[pl.Expr]:
    """`mean_ns`, `median_ns`, `min_ns`, `max_ns`, `std_ns`, `p95_ns` of `value`."""
    return [
        whole_ns(value.mean()).alias("mean_ns"),
        median_ns(value).alias("median_ns"),
        value.min().alias("min_ns"),
        value.max().alias("max_ns"),
        std_ns(value).alias("std_ns"),
        p95_ns(value).alias("p95_ns"),
    ]


def percent(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part` of `whole` as 0..100; null where the whole is 0."""
    return pl.when(whole != 0).then(100.0 * part / whole)
