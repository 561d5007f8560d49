"""The checks on the recording."""

from nsysflow.report.blocks.integrity import block, quality_lines
from nsysflow.report.fields import Limits
from tests.report.handmade import Results, results, training


def test_a_check_says_what_it_affects() -> None:
    found = block(Results([training()]), Limits(rows=9))
    assert [column.head for column in found.columns] == ["check", "count", "share", "affects"]
    assert found.rows == (
        ("unattributed operations", "3", "0.3 %", "phases: these operations are in none"),
    )


def test_a_check_without_a_share_has_no_column_of_it() -> None:
    row = {"check": "negative durations", "count": 2, "share_pct": None, "impact": "dropped"}
    found = block(results(integrity=[row]), Limits(rows=9))
    assert found.rows == (("negative durations", "2", "dropped"),)


def test_on_one_screen_a_check_is_a_line() -> None:
    share = {"check": "unattributed operations", "count": 1_360, "share_pct": 20.0}
    none = {"check": "negative durations", "count": 2, "share_pct": None, "impact": "sums: dropped"}
    run = results(integrity=[{**share, "impact": "phases: in none"}, none])
    assert quality_lines(run) == (
        "unattributed operations: 1,360 (20 %); affects phases: in none",
        "negative durations: 2; affects sums: dropped",
    )
