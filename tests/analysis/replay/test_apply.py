"""What a change stands for, which calls only read values back, and what comes of changes."""

from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import MOST_PRINTED, CallKey, Changes
from nsysflow.analysis.replay.read_loops import acting_calls, read_loops
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.replay.whatif import lengths_after, whatif
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import UnknownName
from nsysflow.base.names import OUTSIDE
from tests.analyses import CAUSE_COLUMNS, analysed, any_trace, loaded, sums
from tests.analysis.replay.replays import AUTOGRAD, Row, replayed, timeline_of, without
from tests.in_us import call, kernel, launch, opened
from tests.oracle.model import PlainTrace, to_trace
from tests.tiny import AS_RECORDED

TIMELINE = analysed("nan_check-sync").timeline


@pytest.mark.parametrize(
    ("changes", "says", "advises"),
    [
        (without("sync", "nan_check.py:124"), ".", "nan_check.py:125"),
        (without("all", "step/metric"), ".", "step/metrics"),
        (Changes(graphs=("foward",)), ".", "forward"),
        (Changes(faster_host=(("dta", 0.5),)), ".", "data"),
        (Changes(scaled=(("reduce_kernels", 0.5),)), ".", "reduce_kernel"),
        (Changes(graphs=("xyz123",)), r"There are:.*step", ""),
        (Changes(removed_calls=(CallKey(1, 2, 3),)), "1 of 1 calls are not in", ""),
        (Changes(scaled=(("memcpy DtoD", 0.0),)), "no kernel or copy", ""),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_names(
    changes: Changes, says: str, advises: str
) -> None:
    with pytest.raises(UnknownName, match=says) as caught:
        replayed(TIMELINE, changes)
    assert caught.value.exit_code == 2
    assert advises in caught.value.advice


def window_end(changes: Changes) -> int:
    return int(replayed(TIMELINE, changes).ops.select(pl.max("end_ns")).item())


def test_a_wait_is_found_by_its_line_its_frame_its_phase_and_the_phase_around_it() -> None:
    places = ("nan_check.py:125", "nan_check.py:125 in check", "metrics", "step/metrics", "step")
    found = {window_end(without("sync", place)) for place in places}
    assert len(found) == 1
    assert found != {window_end(Changes())}
    assert window_end(without("sync", "data")) == window_end(Changes())


def test_of_several_factors_of_one_kernel_the_smallest_counts() -> None:
    names = TIMELINE.ops.filter(pl.col("short_name") == "reduce_kernel")["name"].cast(pl.String)
    both = Changes(scaled=(("reduce_kernel", 0.5), *((name, 0.25) for name in names.unique())))
    quarter = Changes(scaled=(("reduce_kernel", 0.25),))
    assert replayed(TIMELINE, both).ops.equals(replayed(TIMELINE, quarter).ops)


def test_only_the_first_kernels_of_many_are_printed() -> None:
    scaled = tuple((f"kernel_{number}", 0.5) for number in range(9))
    assert [*Changes(scaled=scaled).options()][1::2] == [
        f"kernel_{number}=0.5" for number in range(MOST_PRINTED)
    ]


WAITING = timeline_of(
    *(launch(0, 5, 1), kernel(7, 100, 1), call(10, 101, "cudaDeviceSynchronize")),
    opened(110, 400, "step"),
    *(launch(120, 125, 2), kernel(127, 200, 2), call(130, 201, "cudaDeviceSynchronize")),
    opened(210, 390, "log"),
    *(launch(220, 225, 3), kernel(227, 300, 3), call(230, 301, "cudaDeviceSynchronize")),
)


@pytest.mark.parametrize(
    ("place", "gone"),
    [
        ("step", [False, True, True]),
        ("step/.", [False, True, False]),
        ("log", [False, False, True]),
        (OUTSIDE, [True, False, False]),
    ],
)
def test_the_waits_are_taken_from_the_place_alone(place: str, gone: list[bool]) -> None:
    calls = replayed(WAITING, without("sync", place)).calls
    assert [calls["end_ns"][k] == calls["start_ns"][k] for k in (1, 3, 5)] == gone


def test_of_several_factors_for_one_name_the_smallest_counts() -> None:
    parts = [Changes(scaled=(("k", factor),)) for factor in (0.5, 0.25, 0.75)]
    assert Changes.together(parts) == Changes(scaled=(("k", 0.25),))


READ, WAIT = "cudaStreamSynchronize", "cudaDeviceSynchronize"

CALLS = {"w": READ, "s": WAIT, "a": "cudaMalloc"}
KERNELS = {"k": "reduce_kernel", "m": "sgemm_128x64", "t": "triton_poi_fused_0"}


def rows_of(calls: str) -> list[Row]:
    """Calls of one thread: kernels of `KERNELS` launched, and others of `CALLS`."""
    rows: list[Row] = []
    for place, letter in enumerate(calls):
        at = 100 * place
        if letter in CALLS:
            rows.append(call(at, at + 20, CALLS[letter]))
        else:
            ran = kernel(at + 7, at + 15, place + 1, name=KERNELS[letter])
            rows += [launch(at, at + 5, place + 1), ran]
    return rows


@pytest.mark.parametrize(
    ("calls", "going"),
    [
        ("kwkw", "...."),  # two reads are no loop
        ("kwkwkw", "KWKWKW"),
        ("wwwwk", "WWWW."),
        ("mkkkwkkwkwkkwk", "...KWKKWKWKKW."),  # before the first read as many as the fewest
        ("kkkkwkkkkwkkkkwkkkkw", "KKKKWKKKKWKKKKWKKKKW"),
        ("kwkwkwkwkkkkkwkwkwkw", "KWKWKWKW....KWKWKWKW"),  # five kernels part two loops
        ("kwkwkmwkwk", ".........."),
        ("kwkwktwkwk", ".........."),
        ("kwkwkswkwk", ".........."),
        ("kwkwkawkwk", ".........."),
        ("mwkwkwkw", ".WKWKWKW"),  # work before the first read stays
    ],
)
def test_what_goes_with_a_loop(calls: str, going: str) -> None:
    events = timeline_of(*rows_of(calls)).events
    reads = events.calls.filter(pl.col("name") == READ)["call"]
    loops = read_loops(acting_calls(events), reads)
    gone = {*loops["call"]}
    marks = "".join(letter.upper() if place in gone else "." for place, letter in enumerate(calls))
    assert marks == going
    assert loops["kernels"].sum() == marks.count("K")
    assert loops["kernel_ns"].sum() == 8_000 * marks.count("K")


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
    of_step = (found.step_idle_before or {}, found.step_idle_after or {})
    assert [sum(idle.values()) for idle in of_step] == [100_000, 1_000]
    assert found.idle_after == dict.fromkeys(found.idle_after, 0) | {"queue_delay": 4_000}


def test_all_idle_time_of_a_longer_replay_on_two_gpus_has_a_cause() -> None:
    rows: list[Row] = []
    for at in (0, 200):
        rows += [launch(at, at + 5, at + 1), launch(at + 10, at + 15, at + 2)]
        rows += [kernel(at + 10, at + 110, at + 1), call(at + 20, at + 115, WAIT)]
        rows.append(replace(kernel(at + 20, at + 60, at + 2, name="other"), device=1))
    found = whatif(timeline_of(*rows), Changes(scaled=(("k", 50.0),)))
    # both GPUs wait from one round to the next, behind 5 ms on the first one
    assert sum(found.idle_before.values()) == 100_000 + 160_000
    assert sum(found.idle_after.values()) == 100_000 + 5_060_000


def test_the_gap_behind_a_graph_looks_at_the_thread_that_launches_it() -> None:
    """The first of two launches is autograd's, which later allocates memory."""
    found = whatif(
        timeline_of(
            *(opened(0, 100, "step"), launch(5, 10, 1, thread=AUTOGRAD), launch(20, 25, 2)),
            *(call(150, 250, "cudaMalloc", thread=AUTOGRAD), launch(300, 305, 3)),
            *(kernel(15, 20, 1), kernel(30, 35, 2), kernel(310, 320, 3)),
        ),
        Changes(graphs=("step",)),
    )
    assert found.idle_after["alloc"] == 100_000


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
    found = whatif(nsysflow.analyze(to_trace(plain), Options()).timeline, EVERYTHING)
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
