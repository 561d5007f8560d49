"""What may be wrong with the recording."""

from nsysflow.report.fields import Limits, filled, left_out, named_rows, value
from nsysflow.report.layout import Block, figure, without_empty_columns, words
from nsysflow.report.results import Results
from nsysflow.units import number, percent


def block(results: Results, limits: Limits) -> Block:
    """The checks that found something, and which numbers that affects."""
    table = results.table("integrity")
    checks = filled(
        "Data quality",
        named_rows(table, limits),
        (
            (words("check"), value("check")),
            (figure("count"), value("count", number)),
            (figure("share"), value("share_pct", percent)),
            (words("affects"), value("impact")),
        ),
        more=left_out(table.height - limits.rows, "integrity"),
    )
    return without_empty_columns(checks)
