"""The phases as a tree."""

from typing import Any

from nsysflow.report.blocks.phases import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.found import stepped
from tests.report.handmade import MS, Results, device, results, training


def phases(of: Results, rows: int = 10) -> Block:
    return block(of, Limits(rows=rows))


def column(of: Block, head: str) -> list[str]:
    at = [each.head for each in of.columns].index(head)
    return [row[at] for row in of.rows]


def run(*rows: dict[str, Any]) -> Results:
    return results(accounting=[device(100 * MS)], phases=[{"depth": 1, **row} for row in rows])


def test_a_nested_phase_is_indented_below_the_one_around_it() -> None:
    names = column(phases(Results([training()])), "phase")
    assert names == ["step", "  forward", "  loss", "(outside ranges)"]


def test_gpu_time_is_busy_and_idle_together() -> None:
    found = phases(Results([training()]))
    assert found.rows[1][1:5] == ("52.0 ms", "75 %", "40.0 ms", "12.0 ms")


def test_times_and_counts_are_those_of_a_step_where_steps_are_judged() -> None:
    found = phases(Results([stepped()]))
    assert found.rows[1][1:5] == ("26.0 ms", "75 %", "20.0 ms", "6.00 ms")
    assert column(found, "kernels")[1] == "300"
    assert found.caption.endswith("50.0 ms of 50.0 ms; per step")


def test_the_caption_says_that_the_top_level_adds_up_to_the_window() -> None:
    assert phases(Results([training()])).caption.endswith(": 100 ms of 100 ms")


def test_a_phase_says_what_bounds_it_and_what_its_idle_time_is() -> None:
    bound = {"path": "a", "busy_ns": 2 * MS, "bound": "blocking_copy+host"}
    idle = {"idle_ns": 3 * MS, "launch_ns": 2 * MS, "host_ns": 1 * MS}
    found = phases(run({**bound, **idle}, {"path": "b", "busy_ns": MS, "bound": "compute"}))
    assert column(found, "bound")[:2] == ["blocking copy, host", "compute"]
    assert column(found, "idle mostly")[:2] == ["launch overhead", ""]


def test_a_phase_in_which_no_gpu_time_passed_has_no_row_and_is_counted() -> None:
    found = phases(run({"path": "step", "busy_ns": MS}, {"path": "data", "host_wall_ns": MS}))
    assert "data" not in column(found, "phase")
    assert found.rest == "1 more: --table phases"


def test_without_gpu_work_the_ranges_have_the_time_of_the_host() -> None:
    row = {"path": "step", "depth": 1, "instances": 4, "host_wall_ns": 20 * MS}
    block = phases(results(phases=[row]))
    assert block.title == "Ranges"
    assert block.rows == (("step", "4", "20.0 ms", "5.00 ms"),)
