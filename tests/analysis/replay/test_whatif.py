"""Step, window and idle time before and after changes."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.replay.whatif import lengths_after, whatif
from nsysflow.analysis.trace import NoteKind
from tests.analyses import CAUSE_COLUMNS, analysed, any_trace, loaded, sums
from tests.analysis.replay.replays import Row, call, kernel, launch, opened, timeline_of, without
from tests.oracle.model import PlainTrace, to_trace
from tests.tiny import AS_RECORDED

EVERYTHING = Changes(removed=without("all").removed, async_copies=True, no_profiler=True)


def test_steps_and_idle_time_are_those_of_the_replay() -> None:
    rows: list[Row] = []
    for at in range(0, 1000, 200):
        rows += [opened(at, at + 190, "step"), launch(at, at + 5, at + 1)]
        rows += [call(at + 5, at + 115, "cudaStreamSynchronize"), kernel(at + 10, at + 110, at + 1)]
    found = whatif(timeline_of(*rows), without("sync"))
    # the steps 2 and 3; work of 85 us stays, so that launches are 90 us apart and kernels back to
    # back, 1 us between them
    assert found.before.step_ns == 200_000
    assert found.after.step_ns == 101_000
    assert (found.before.window_ns, found.after.window_ns) == (900_000, 504_000)
    assert sum(found.idle_before.values()) == 400_000
    assert found.step_idle_before is not None
    assert found.step_idle_after is not None
    assert sum(found.step_idle_before.values()) == 100_000
    assert sum(found.step_idle_after.values()) == 1_000
    assert found.idle_after == dict.fromkeys(found.idle_after, 0) | {"queue_delay": 4_000}


def test_an_operation_without_length_makes_no_window_longer() -> None:
    calls = launch(0, 5, 1), launch(190, 195, 2)
    timeline = timeline_of(*calls, kernel(10, 110, 1), kernel(200, 200, 2))
    assert whatif(timeline, Changes()).before.window_ns == 100_000


@pytest.mark.parametrize("name", ["h200-ddp-rank0", "h200-graph-level", "synthetic-1"])
def test_with_nothing_changed_the_causes_are_those_of_the_report(name: str) -> None:
    timeline = nsysflow.analyze(loaded(name), AS_RECORDED).timeline
    found = whatif(timeline, Changes())
    whole = sums(timeline.gaps, CAUSE_COLUMNS)
    assert found.idle_after == found.idle_before
    assert {f"{cause}_ns": ns for cause, ns in found.idle_after.items()} == whole
    assert found.before == found.after


@pytest.mark.parametrize("name", ["h200-gpu-metrics", "h200-nvtx-domain", "nan_check-sync"])
def test_idle_and_busy_time_after_a_change_add_up_to_the_window(name: str) -> None:
    """Their kernels never overlap, so that they keep the GPU busy for as long as before."""
    timeline = analysed(name).timeline
    phases = tuple(timeline.attribution.paths["name"].unique(maintain_order=True).head(2))
    graphed = replace(EVERYTHING, graphs=phases, faster_host=tuple((each, 0.0) for each in phases))
    for changes in (EVERYTHING, graphed):
        found = whatif(timeline, changes)
        busy_ns = found.before.window_ns - sum(found.idle_before.values())
        assert found.after.window_ns - sum(found.idle_after.values()) == busy_ns
        assert found.idle_after["profiler"] == 0


def test_many_changes_of_one_trace_share_its_program() -> None:
    timeline = nsysflow.analyze(loaded("nan_check-sync"), AS_RECORDED).timeline
    program = recorded(timeline)
    found = whatif(timeline, without("sync"))
    assert lengths_after(timeline, program, without("sync")) == found.after
    assert lengths_after(timeline, program, Changes()) == found.before


@any_trace
def test_any_trace_can_be_replayed(plain: PlainTrace) -> None:
    timeline = nsysflow.analyze(to_trace(plain), Options()).timeline
    found = whatif(timeline, EVERYTHING)
    assert min(found.idle_after.values()) >= 0


def test_a_trace_without_operations_takes_no_time() -> None:
    found = whatif(timeline_of(), without("sync"))
    assert (found.before.window_ns, found.after.window_ns, found.after.step_ns) == (0, 0, None)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nan_check-sync", []),
        ("h200-ddp-rank1", [NoteKind.OTHER_RANKS]),
        ("overlap-side_stream", [NoteKind.EVENTS_NOT_RECORDED]),
    ],
)
def test_the_limits_of_the_replay_are_said(name: str, kinds: list[NoteKind]) -> None:
    found = whatif(analysed(name).timeline, Changes())
    assert [note.kind for note in found.notes] == kinds
