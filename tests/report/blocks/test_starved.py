"""Starved windows."""

from nsysflow.report.blocks.starved import block, starved_line
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, results

WINDOW = {"start_ns": 1 * MS, "end_ns": 3 * MS, "graph_estimate_ns": 1 * MS, "launch_idle_ns": MS}


def test_a_window_has_its_time_and_that_of_a_cuda_graph() -> None:
    (row,) = block(results(starved=[{**WINDOW, "ops": 40}]), Limits(rows=9)).rows
    assert row[:4] == ("1.00 ms", "2.00 ms", "1.00 ms", "40")
    assert row[-2:] == ("(outside ranges)", "0.001000 s")


def test_the_line_sums_the_windows_up() -> None:
    assert starved_line(results(starved=[WINDOW, WINDOW])) == (
        "2 windows starved of launches: 4.00 ms, about 2.00 ms as CUDA graphs: --table starved",
    )


def test_one_window_is_not_called_windows() -> None:
    assert starved_line(results(starved=[WINDOW])) == (
        "1 window starved of launches: 2.00 ms, about 1.00 ms as CUDA graph: --table starved",
    )


def test_without_windows_there_is_no_line() -> None:
    assert starved_line(results()) == ()
