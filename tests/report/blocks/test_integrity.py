"""The checks on the recording."""

from nsysflow.report.blocks.integrity import block
from nsysflow.report.fields import Limits
from tests.report.handmade import Results, results, training


def test_a_check_says_what_it_affects() -> None:
    found = block(Results([training()]), Limits(rows=9))
    assert [column.head for column in found.columns] == ["check", "count", "share", "affects"]
    assert found.rows == (("unattributed operations", "3", "0.3 %", "their time is in no phase"),)


def test_a_check_without_a_share_has_no_column_of_it() -> None:
    row = {"check": "negative durations", "count": 2, "share_pct": None, "impact": "dropped"}
    found = block(results(integrity=[row]), Limits(rows=9))
    assert found.rows == (("negative durations", "2", "dropped"),)
