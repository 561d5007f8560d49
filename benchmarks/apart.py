"""How far the medians of two runs of `nsysflow bench` differ.

    nsysflow bench --csv first.csv
    nsysflow bench --csv second.csv
    python benchmarks/apart.py first.csv second.csv

For each way of timing it prints how many cases of both files differ by less than 2 %, and those
that differ most. Of several rows of a case, the last one counts. Spans from event to event include
the GPU's time for a launch, which is 0.13 us longer on some streams than on others; graphs do not.
"""

from pathlib import Path

import click
import polars as pl

CASE = ("gpu", "kernel", "shape", "dtype", "direction", "variant")
LIMIT_PCT = 2.0
SHOWN = 5

_SIDES = ("first_ns", "second_ns")
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def apart(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """One row per case and way of timing in both runs, the largest difference first.

    The columns are those of the case, `timing`, `first_ns`, `second_ns` and `apart_pct`.

    Args:
        first: the rows of one run, all columns as strings.
        second: the rows of another run.
    """
    of_smaller = 100 * (pl.max_horizontal(*_SIDES) / pl.min_horizontal(*_SIDES) - 1)
    both = _medians(first, "first_ns").join(_medians(second, "second_ns"), on=[*CASE, "timing"])
    return both.with_columns(of_smaller.alias("apart_pct")).sort("apart_pct", descending=True)


def _medians(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """The medians of each case's last row, one median per row, without missing ones."""
    columns = [each for each in rows.columns if each.endswith("_median_ns")]
    return (
        rows.unique(CASE, keep="last", maintain_order=True)
        .unpivot(columns, index=CASE, variable_name="timing", value_name=name)
        .with_columns(
            pl.col("timing").str.strip_suffix("_median_ns"),
            pl.col(name).replace("", None).cast(pl.Float64),
        )
        .drop_nulls(name)
    )


@click.command()
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
def main(first: Path, second: Path) -> None:
    """Compare the rows of FIRST with those of SECOND."""
    found = apart(*(pl.read_csv(path, infer_schema=False) for path in (first, second)))
    for (timing,), cases in found.group_by("timing", maintain_order=True):
        near = (cases["apart_pct"] < LIMIT_PCT).sum()
        click.echo(f"{timing}: {near} of {cases.height} differ by less than {LIMIT_PCT:g} %")
        for row in cases.head(SHOWN).iter_rows(named=True):
            case = " ".join(row[name] for name in CASE[1:])
            us = f"{row['first_ns'] / 1e3:.2f} and {row['second_ns'] / 1e3:.2f} us"
            click.echo(f"  {row['apart_pct']:.2f} %  {us}  {case}")


if __name__ == "__main__":
    main()
