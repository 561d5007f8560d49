"""The phases as a tree."""

from nsysflow.report.blocks.phases import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, results, training


def phases(of: Results, rows: int = 10) -> Block:
    return block(of, Limits(rows=rows))


def test_a_nested_phase_is_indented_below_the_one_around_it() -> None:
    names = [row[0] for row in phases(Results([training()])).rows]
    assert names == ["step", "  forward", "  loss", "(outside ranges)"]


def test_gpu_time_is_busy_and_idle_together() -> None:
    row = phases(Results([training()])).rows[1]
    assert row[3:8] == ("52.0 ms", "75 %", "", "40.0 ms", "12.0 ms")


def test_the_caption_says_that_the_top_level_adds_up_to_the_window() -> None:
    assert phases(Results([training()])).caption.endswith("top level: 100 ms of 100 ms")


def test_without_gpu_work_the_ranges_have_the_time_of_the_host() -> None:
    row = {"path": "step", "depth": 1, "instances": 4, "host_wall_ns": 20 * MS}
    block = phases(results(phases=[row]))
    assert block.title == "Ranges"
    assert block.rows == (("step", "4", "20.0 ms", "5.00 ms"),)
