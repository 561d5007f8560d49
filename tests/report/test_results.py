"""The tables of a run."""

from tests.analyses import analysed
from tests.report.handmade import Results, handmade, training


def test_the_tables_of_a_run_are_of_all_its_reports() -> None:
    both = Results([analysed(f"h200-ddp-rank{number}") for number in (0, 1)])
    assert both.table("arrivals").height == 30
    assert both.table("ranks")["report"].to_list() == ["h200-ddp-rank0", "h200-ddp-rank1"]
    assert Results([handmade()]).table("ranks").is_empty()


def test_the_rows_of_two_reports_are_one_table() -> None:
    assert Results([training(), training()]).table("gap_summary").height == 6
