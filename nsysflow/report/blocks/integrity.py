"""What may be wrong with the recording."""

from nsysflow.base.units import number, percent
from nsysflow.report.fields import Limits, Row, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, figure, without_empty_columns, words
from nsysflow.report.results import Results


def quality_lines(results: Results) -> tuple[str, ...]:
    """The same in a line for each check: `unattributed operations: 96 (2.9 %); affects …`."""
    return tuple(
        f"{row['check']}: {number(row['count'])}{_share(row)}; affects {row['impact']}"
        for row in results.table("integrity").iter_rows(named=True)
    )


def _share(row: Row) -> str:
    return "" if row["share_pct"] is None else f" ({percent(row['share_pct'])})"


def block(results: Results, limits: Limits) -> Block:
    """The checks that found something, and which numbers that affects."""
    table = results.table("integrity")
    checks = make_block(
        "Data quality",
        named_rows(table, limits),
        (
            (words("check"), value("check")),
            (figure("count"), value("count", number)),
            (figure("share"), value("share_pct", percent)),
            (words("affects"), value("impact")),
        ),
        rest=more_rows(table.height - limits.rows, "integrity"),
    )
    return without_empty_columns(checks)
