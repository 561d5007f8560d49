"""Where each GPU's time goes."""

from dataclasses import replace

from nsysflow.report.blocks.accounting import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.found import stepped
from tests.report.handmade import MS, Results, device, handmade, results, training


def accounting(of: Results, rows: int = 8) -> Block:
    return block(of, Limits(rows=rows))


def heads(of: Block) -> list[str]:
    return [column.head for column in of.columns]


def test_the_parts_of_a_window_have_their_share() -> None:
    found = accounting(Results([training()]))
    (row,) = found.rows
    assert heads(found) == ["GPU", "window", "", "compute", "comm", "copy", "idle"]
    assert row[:2] == ("GPU 0", "100 ms")
    assert row[3:] == ("49.0 ms 49 %", "0", "1.00 ms 1.0 %", "50.0 ms 50 %")
    assert not found.caption.endswith("per step")


def test_where_steps_are_judged_a_row_is_one_of_them() -> None:
    found = accounting(Results([stepped()]))
    (row,) = found.rows
    assert heads(found)[1] == "step"
    assert row[:2] == ("GPU 0", "50.0 ms")
    assert row[3:] == ("24.5 ms 49 %", "0", "500 us 1.0 %", "25.0 ms 50 %")
    assert found.caption.endswith("; per step")
    assert found.more[0].startswith("idle: host code 15.0 ms 30 %")


def test_each_gpu_has_steps_of_its_own() -> None:
    rows = [device(100 * MS, device=number) for number in (0, 1)]
    counts = {("run.sqlite", 0): 2, ("run.sqlite", 1): 4}
    found = accounting(Results([replace(handmade(accounting=rows), step_counts=counts)]))
    assert [row[1] for row in found.rows] == ["50.0 ms", "25.0 ms"]


def test_a_bar_shows_the_parts_in_proportion() -> None:
    quarter = device(100 * MS, comm_exposed_ns=25 * MS, copy_exposed_ns=25 * MS, host_ns=25 * MS)
    (row,) = accounting(results(accounting=[quarter])).rows
    bar = row[2]
    assert len(bar) == 30
    assert [bar.count(letter) for letter in "█▓▒░"] == [8, 7, 7, 8]


def test_the_causes_of_idle_are_named_in_words_the_largest_first() -> None:
    assert accounting(Results([training()])).more == (
        "idle: host code 30.0 ms 30 %, launch overhead 12.0 ms 12 %,"
        " waiting in a sync 8.00 ms 8.0 %",
    )


def test_a_fourth_cause_is_only_hinted_at() -> None:
    causes = {"host_ns": 4 * MS, "launch_ns": 3 * MS, "sync_ns": 2 * MS, "api_ns": MS}
    (line,) = accounting(results(accounting=[device(100 * MS, **causes)])).more
    assert line.endswith("waiting in a sync 2.00 ms 2.0 %, …")


def test_a_gpu_that_never_idles_has_no_causes() -> None:
    assert accounting(results(accounting=[device(100 * MS)])).more == ()


def test_gpus_beyond_the_limit_are_counted() -> None:
    rows = [device(100 * MS, device=index) for index in range(3)]
    assert accounting(results(accounting=rows), rows=2).rest == "1 more: --table accounting"
