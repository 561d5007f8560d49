"""Work inside CUDA graphs belongs to the ranges in which it was captured."""

from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.notes import NoteKind
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.timeline import Timeline
from tests.analyses import analysed, loaded
from tests.oracle.model import Capture, Range, to_trace
from tests.tiny import (
    AUTOGRAD,
    PROCESS,
    Row,
    analysis_of,
    call,
    kernel,
    launch,
    made,
    opened,
    plain_of,
    timeline_of,
)

CAPTURE: tuple[Row, ...] = (
    call(100, 105, "cudaStreamBeginCapture"),
    call(190, 195, "cudaStreamEndCapture"),
)
REPLAY: tuple[Row, ...] = (
    opened(1_000, 1_100, "replay"),
    launch(1_010, 1_020, 1, name="cudaGraphLaunch"),
    kernel(1_030, 1_040, 1, node=11),
)
CLONE = made(200, 11, original=1)
"""The node of the graph that `REPLAY` runs, cloned when the graph was instantiated."""


def place(*rows: Row) -> tuple[str, str | None]:
    """The phase of the only kernel, and how it got it."""
    timeline = timeline_of(*rows)
    (name,) = timeline.attribution.name_of(timeline.ops["node"])
    (how,) = timeline.ops["how"]
    return name, how


def test_a_kernel_belongs_to_the_ranges_of_its_capture_inside_those_of_the_replay() -> None:
    rows = opened(110, 180, "forward"), opened(120, 170, "norm"), made(150, 1), CLONE
    assert place(*CAPTURE, *REPLAY, *rows) == ("replay/forward/norm", "captured")


def test_a_range_that_was_open_before_the_capture_began_is_not_added() -> None:
    rows = opened(90, 300, "build"), opened(110, 180, "forward"), made(150, 1), CLONE
    assert place(*CAPTURE, *REPLAY, *rows) == ("replay/forward", "captured")


def test_a_range_that_is_open_at_the_replay_too_is_not_added_again() -> None:
    rows = opened(110, 180, "replay"), opened(120, 170, "forward"), made(150, 1), CLONE
    assert place(*CAPTURE, *REPLAY, *rows) == ("replay/forward", "captured")


def test_work_captured_on_an_autograd_thread_belongs_to_the_main_threads_ranges() -> None:
    rows = opened(110, 180, "backward"), made(150, 1, thread=AUTOGRAD), CLONE
    assert place(*CAPTURE, *REPLAY, *rows) == ("replay/backward", "captured")


def test_a_clone_of_a_clone_belongs_to_the_capture() -> None:
    rows = opened(110, 180, "forward"), made(150, 1), made(196, 5, original=1)
    assert place(*CAPTURE, *REPLAY, *rows, made(200, 11, original=5)) == (
        "replay/forward",
        "captured",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((), id="no nodes are in the report"),
        pytest.param((CLONE,), id="the captured node is not in the report"),
        pytest.param((CLONE, made(150, 1, original=11)), id="the nodes lead to each other"),
        pytest.param((CLONE, made(195, 1)), id="the capture had ended"),
    ],
)
def test_without_the_capture_of_a_kernel_the_replay_alone_counts(nodes: tuple[Row, ...]) -> None:
    assert place(*CAPTURE, *REPLAY, opened(110, 300, "forward"), *nodes) == ("replay", "own")


def test_a_graph_that_was_built_by_hand_has_only_the_ranges_of_its_replay() -> None:
    assert place(*REPLAY, opened(110, 180, "forward"), made(150, 1), CLONE) == ("replay", "own")


def before_the_window(*listed: Range) -> nsysflow.Analysis:
    """A replay of a graph that was captured before our runtime opened the window."""
    plain = plain_of(*REPLAY, made(150, 1), CLONE)
    windows = (Capture(PROCESS, "3:2:5", None),)
    return nsysflow.analyze(to_trace(replace(plain, captures=windows, graph_ranges=listed)))


def test_ranges_that_the_window_lists_count_for_captures_before_the_window() -> None:
    listed = opened(100, 190, "forward"), opened(110, 160, "norm"), opened(110, 140, "linear")
    analysis = before_the_window(*listed)
    assert analysis.phases.filter(pl.col("ops") > 0).select("path", "captured_ops").rows() == [
        ("replay", 1),
        ("replay/forward", 1),
        ("replay/forward/norm", 1),
    ]


def test_work_that_an_autograd_thread_captured_inherits_listed_ranges() -> None:
    rows = *REPLAY, made(150, 1, thread=AUTOGRAD), CLONE
    plain = replace(plain_of(*rows), graph_ranges=(opened(100, 190, "backward"),))
    timeline = Timeline(to_trace(plain), Options())
    assert timeline.attribution.name_of(timeline.ops["node"]).item() == "replay/backward"


def test_listed_ranges_are_no_phases_of_their_own() -> None:
    assert before_the_window(opened(300, 400, "forward")).phases["path"].to_list() == ["replay"]


def test_a_note_says_that_the_ranges_of_earlier_captures_are_unknown() -> None:
    (note,) = analysis_of(*REPLAY, made(150, 1), CLONE).notes
    assert note.kind is NoteKind.CAPTURES_NOT_RECORDED
    assert "unknown (1 operations): the graphs were captured before" in note.text


def test_our_window_would_list_the_ranges_of_earlier_captures() -> None:
    assert before_the_window().notes == ()


def test_a_graph_built_by_hand_while_recording_needs_no_note() -> None:
    graph = call(90, 95, "cudaGraphAddKernelNode"), made(150, 1), CLONE
    assert analysis_of(*REPLAY, *graph).notes == ()


TWO_PHASES: tuple[Row, ...] = (
    *CAPTURE,
    opened(110, 140, "forward"),
    opened(150, 180, "backward"),
    made(120, 1),
    made(160, 2),
    made(200, 11, original=1),
    made(201, 12, original=2),
    opened(1_000, 3_100, "replay"),
    launch(1_010, 1_020, 1, name="cudaGraphLaunch"),
    kernel(1_030, 1_040, 1, node=11),
    kernel(1_045, 1_060, 1, node=12),
    launch(2_010, 2_020, 2, name="cudaGraphLaunch"),
    kernel(2_030, 2_040, 2, node=11),
    kernel(2_045, 2_060, 2, node=12),
)
"""Two replays of a graph with two phases."""


def test_each_replay_is_an_instance_of_the_captured_phases_which_launch_nothing() -> None:
    columns = ["path", "instances", "kernels", "kernel_ns", "launches", "host_wall_ns"]
    assert analysis_of(*TWO_PHASES).phases.select(columns).rows()[2:] == [
        ("replay", 1, 4, 50, 2, 2_100),
        ("replay/forward", 2, 2, 20, 0, 0),
        ("replay/backward", 2, 2, 30, 0, 0),
    ]


def test_idle_between_two_kernels_of_a_replay_belongs_to_the_phase_of_the_second() -> None:
    gaps = analysis_of(*TWO_PHASES).gaps.sort("start_ns")
    assert gaps.select("start_ns", "phase", "waiting_phase").rows() == [
        (1_040, "replay/backward", "replay/backward"),
        (1_060, "replay", "replay/forward"),
        (2_040, "replay/backward", "replay/backward"),
    ]


def test_each_replay_on_an_h200_has_the_kernels_of_the_captured_forward_and_backward() -> None:
    analysis = analysed("h200-graph-ranges")
    rows = analysis.phases.select("path", "instances", "kernels", "captured_ops").rows()
    found = {path: counts for path, *counts in rows if "/replay/" in path}
    # forward has a memset too
    assert found == {
        "step/replay/forward": [20, 20 * 14, 20 * 15],
        "step/replay/backward": [20, 20 * 31, 20 * 31],
        "step/replay/optimizer": [20, 20 * 2, 20 * 2],
    }


def test_work_captured_outside_all_ranges_keeps_the_path_of_its_replay() -> None:
    timeline = Timeline(loaded("h200-train"), Options())
    captured = timeline.captured_nodes["graph_node"]
    ops = timeline.ops.drop_nulls("graph_node")
    assert ops["graph_node"].is_in(captured.implode()).sum() == 640
    assert Counter(ops["how"]) == {"own": 640}
