"""Where each GPU's time goes."""

from nsysflow.report.blocks.accounting import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, device, results, training


def accounting(of: Results, rows: int = 8) -> Block:
    return block(of, Limits(rows=rows))


def test_the_parts_of_a_window_have_their_share() -> None:
    (row,) = accounting(Results([training()])).rows
    assert row[:2] == ("GPU 0", "100 ms")
    assert row[3:] == ("49.0 ms 49 %", "0", "1.00 ms 1.0 %", "50.0 ms 50 %")


def test_a_bar_shows_the_parts_in_proportion() -> None:
    quarter = device(100 * MS, comm_exposed_ns=25 * MS, copy_exposed_ns=25 * MS, host_ns=25 * MS)
    (row,) = accounting(results(accounting=[quarter])).rows
    bar = row[2]
    assert len(bar) == 30
    assert [bar.count(letter) for letter in "█▓▒░"] == [8, 7, 7, 8]


def test_the_causes_of_idle_are_named_in_words_the_largest_first() -> None:
    assert accounting(Results([training()])).more == (
        "idle by cause: host code 30.0 ms 30 %, launch overhead 12.0 ms 12 %,"
        " waiting in a sync 8.00 ms 8.0 %",
    )


def test_a_gpu_that_never_idles_has_no_causes() -> None:
    assert accounting(results(accounting=[device(100 * MS)])).more == ()


def test_gpus_beyond_the_limit_are_counted() -> None:
    rows = [device(100 * MS, device=index) for index in range(3)]
    assert accounting(results(accounting=rows), rows=2).more == ("1 more: --table accounting",)
