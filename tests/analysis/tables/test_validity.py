"""The checks that a recording must pass."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis import schema
from nsysflow.analysis.events import lost_launches
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.validity import Check, FailedCheck, recorded_idle
from nsysflow.analysis.trace import NoteKind
from tests.analyses import EXAMPLES, analysed, any_trace, every_report, loaded, oracle_of
from tests.breaking import (
    EVERY_TENTH_UNSTAMPED,
    MIDDLE_THIRD_GONE,
    NO_OPERATIONS,
    ONE_GRAPH_KERNEL_STRETCHED,
    broken,
)
from tests.oracle import integrity, validity
from tests.oracle.export import read_export
from tests.oracle.model import Capture, Diagnostic, PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces
from tests.oracle.validity import Failures, failures
from tests.reports import ROOT
from tests.tiny import Row, analysis_of, call, copy, kernel, launch, opened, plain_of, trace_of

SOUND: tuple[Row, ...] = (launch(10, 20, 1), kernel(20, 30, 1))

TRACED = NoteKind.BACKTRACES_OF_LAUNCHES


def failed(analysis: nsysflow.Analysis) -> Failures:
    """The failed checks as the oracle gives them."""
    return {
        str(each.check): (each.count, each.of, each.start_ns, each.end_ns)
        for each in analysis.failed_checks
    }


@every_report
def test_a_report_that_nobody_broke_passes(name: str) -> None:
    assert analysed(name).failed_checks == ()
    assert failures(oracle_of(name)) == {}
    assert found(analysed(name)) == validity.recorded_idle(oracle_of(name))


def test_a_kineto_trace_without_kernels_passes() -> None:
    ranges_only = replace(trace_of(opened(0, 9, "step")), collector="kineto")
    assert nsysflow.analyze(ranges_only).failed_checks == ()


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("Importer error status: Importation succeeded with non-fatal errors.", True),
        ("Wrong event order has been detected when adding events to the collection", True),
        ("Cannot find string for an exterior index", True),
        ("Not all CUDA events might have been collected.", False),
        ("CUDA injection initialized successfully.", False),
        ("144 NVTX annotations were discarded because they contained an invalid handle.", False),
    ],
)
def test_what_the_importer_could_not_read_fails(text: str, fails: bool) -> None:
    said = pl.DataFrame([(2, text)], schema=schema.DIAGNOSTICS, orient="row")
    found = nsysflow.analyze(replace(trace_of(*SOUND), diagnostics=said)).failed_checks
    assert found == ((FailedCheck(check=Check.IMPORT_ERRORS, count=1, of=0),) if fails else ())


@pytest.mark.parametrize(
    ("done", "check"),
    [
        (MIDDLE_THIRD_GONE, Check.INCOMPLETE),
        (EVERY_TENTH_UNSTAMPED, Check.UNSTAMPED),
        (NO_OPERATIONS, Check.NO_KERNELS),
    ],
)
def test_a_broken_report_fails_its_check(tmp_path: Path, done: str, check: Check) -> None:
    path = broken(tmp_path, "h200-ddp-rank0", done)
    analysis = nsysflow.analyze(path)
    assert [each.check for each in analysis.failed_checks] == [check]
    assert failed(analysis) == failures(Report(read_export(path)))
    assert not analysis.found.valued


def test_kernels_that_some_launches_of_a_graph_lack_are_missing_and_no_wait() -> None:
    trace = loaded("launch_bound-graph")
    nodes = trace.ops["graph_node"].drop_nulls().unique().sort()
    gone = pl.col("graph_node").is_in(nodes[100:200].implode()) & (
        pl.col("correlation") == trace.ops.drop_nulls("graph_node")["correlation"].max()
    )
    lacking = replace(trace, ops=trace.ops.filter(~gone.fill_null(value=False)))
    sound, broken_ = nsysflow.analyze(trace), nsysflow.analyze(lacking)
    missing = pl.col("check") == "graph operations missing"
    assert sound.integrity.filter(missing).is_empty()
    assert broken_.integrity.filter(missing)["count"].item() == 100
    assert not [one for one in broken_.found.valued if one.finding.rule == "dependency-wait"]
    ((lost_ns, phase),) = (
        broken_.gap_summary.filter(pl.col("cause") == "unknown").select("total_ns", "phase").rows()
    )
    gone_ns = trace.ops.filter(gone).select(pl.max("end_ns") - pl.min("start_ns")).item()
    assert lost_ns >= gone_ns
    assert phase == "(not recorded)"


def test_backtraces_of_most_launches_are_a_note_in_reports_of_others() -> None:
    (note,) = (n for n in analysed("h200-backtrace").notes if n.kind is TRACED)
    assert "launches have a backtrace" in note.text
    assert not [n for n in analysed("h200-train").notes if n.kind is TRACED]


def test_a_recording_that_mostly_captures_graphs_says_so() -> None:
    """Of vLLM and SGLang, traces of their captures: Python between launches that do not run."""
    begins, ends = "hipStreamBeginCapture", "hipStreamEndCapture"
    mostly = call(50, 51, begins), call(80, 81, ends), call(90, 91, begins), call(115, 120, ends)
    (note,) = analysis_of(*SOUND, *mostly).notes
    assert note.kind is NoteKind.MOSTLY_CAPTURES
    assert "captured 55 % of the time: " in note.text
    # less than half, and before the first operation
    assert analysis_of(*SOUND, *mostly[:2], call(115, 120, "cudaGetDevice")).notes == ()
    assert analysis_of(call(0, 1, begins), call(8, 9, ends), *SOUND).notes == ()


def test_one_stretched_kernel_of_a_graph_is_flagged_in_integrity(tmp_path: Path) -> None:
    analysis = nsysflow.analyze(broken(tmp_path, "h200-train", ONE_GRAPH_KERNEL_STRETCHED))
    found = dict(analysis.integrity.select("check", "count").rows())
    assert found["graph operations into other launches"] == 1
    assert found["graph kernels over 100 times their median"] == 1
    assert analysis.failed_checks == ()


def test_what_was_still_queued_at_the_end_is_not_lost() -> None:
    said = ("Not all CUDA events might have been collected.", "incomplete CUPTI events dropped: 40")
    messages = tuple(Diagnostic(1, text) for text in said)
    for missing, lost_ones in (
        (range(60, 101), {}),
        (range(60, 100), {"events": 2, "launches": 40}),
    ):
        trace = replace(plain_of(*pairs(range(1, 101), lost=missing)), diagnostics=messages)
        checks = nsysflow.analyze(to_trace(trace)).integrity.select("check", "count").rows()
        counts = {check.split()[0]: n for check, n in checks if check in LOST}
        assert counts == lost_ones


@given(model=traces())
@settings(max_examples=3 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_oracle_finds_the_same(model: PlainTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:  # random traces are short
        patch.setattr(lost_launches, "LEAST_LAUNCHES", 2)
        patch.setattr(integrity, "IN_A_ROW", 2)
        patch.setattr(lost_launches, "MOST_QUEUED", 2)
        patch.setattr(integrity, "QUEUE", 2)
        assert failed(nsysflow.analyze(to_trace(model))) == failures(Report(model))


def pairs(numbers: range, *, lost: range = range(0)) -> list[Row]:
    """A launch every 10 ns, and its kernel, except those that are lost."""
    launches: list[Row] = [launch(10 * n, 10 * n + 4, n) for n in numbers]
    kernels = [kernel(10 * n + 5, 10 * n + 9, n) for n in numbers if n not in lost]
    return [*launches, *kernels]


CAPTURING = call(395, 396, "cudaStreamBeginCapture"), call(795, 796, "cudaStreamEndCapture")
COPIES = [launch(10 * n, 10 * n + 4, 1000 + n, name="cudaMemcpyAsync") for n in range(30)]
INNER = [launch(10 * n + 1, 10 * n + 2, n, name="cuLaunchKernel") for n in range(1, 101)]
STEPS = [opened(10 * n, 10 * (n + 1000), "step") for n in (1, 1001, 2001)]
COPY = launch(0, 5, 1, name="cudaMemcpyAsync"), copy(6, 9, 1, "HtoD", "pinned", "device")
GRAPH = launch(10, 20, 1), replace(kernel(20, 30, 1), kind="graph")
STRETCH = pairs(range(1, 101), lost=range(40, 60))


LOST = ("events lost", "launches without an operation")
CUT_OFF = pairs(range(1, 1226), lost=range(101, 1226))
ON_ANOTHER_STREAM = replace(kernel(1005, 1006, 100), stream=8)


def unstamped(count: int) -> list[Row]:
    """200 operations or so, of which so many have no times."""
    launches = [launch(n, n + 1, n) for n in range(1, 202)]
    sound = [kernel(n + 1, n + 2, n) for n in range(3, 202)]
    return [*launches, *sound, *(kernel(0, 0, n) for n in range(count))]


CHECKED: dict[str, tuple[Sequence[Row], Check | None]] = {
    "nothing at all": ([], None),
    "a graph as a whole": (GRAPH, None),
    "calls alone": ([call(0, 9, "cudaStreamIsCapturing")], Check.NO_KERNELS),
    "ranges alone": ([opened(0, 9, "step")], Check.NO_KERNELS),
    "copies alone": (COPY, Check.NO_KERNELS),
    "less than 1 % at zero": (unstamped(2), None),
    "1 % at zero": (unstamped(3), Check.UNSTAMPED),
    "twenty in a row": (STRETCH, Check.INCOMPLETE),
    "each a launch of two calls": ([*INNER, *STRETCH], Check.INCOMPLETE),
    "1 % of all": (pairs(range(1, 2001), lost=range(40, 60)), Check.INCOMPLETE),
    "1 % of a step": ([*STEPS, *pairs(range(1, 3001), lost=range(40, 60))], Check.INCOMPLETE),
    "cut off at the begin": (pairs(range(1, 101), lost=range(1, 31)), Check.INCOMPLETE),
    "as many at the end as a GPU takes beforehand": (
        pairs(range(1, 1126), lost=range(102, 1126)),
        None,
    ),
    "more than that": (pairs(range(1, 1126), lost=range(101, 1126)), Check.INCOMPLETE),
    "no more than two streams take": ([*CUT_OFF, ON_ANOTHER_STREAM], None),
    "nineteen": (pairs(range(1, 101), lost=range(40, 59)), None),
    "single launches": (pairs(range(1, 101), lost=range(1, 101, 2)), None),
    "less than 1 % of all": (pairs(range(1, 2002), lost=range(40, 60)), None),
    "into a captured graph": ([*CAPTURING, *pairs(range(1, 101), lost=range(40, 80))], None),
    "copies beside kernels": ([*COPIES, *pairs(range(1, 10))], None),
}
"""Traces, and the check that they fail."""


@pytest.mark.parametrize("name", CHECKED)
def test_a_trace_fails_its_check(name: str) -> None:
    rows, check = CHECKED[name]
    found = failed(analysis_of(*rows))
    assert [*found] == ([] if check is None else [check])
    assert found == failures(Report(plain_of(*rows)))


def test_in_a_narrowed_window_only_what_was_launched_in_it_counts() -> None:
    for options, fails in ((Options(to_ns=300), False), (Options(from_ns=300), True)):
        assert bool(failed(analysis_of(*STRETCH, options=options))) == fails


GRAPHS = ROOT / "samples" / "launch_bound-graph.sqlite.xz"


def found(analysis: nsysflow.Analysis) -> tuple[int, int] | None:
    """Idle time inside the graphs of a step, and how much longer than before the window it is."""
    idle = recorded_idle(analysis.judged.view)
    return None if idle is None else (idle.idle_ns, idle.longer_ns)


@any_trace
def test_idle_time_inside_graphs_of_any_trace_agrees_with_the_oracle(model: PlainTrace) -> None:
    processes = {op.process for op in model.ops}
    marked = replace(model, captures=tuple(Capture(each, "1:1:1", 1) for each in processes))
    assert found(nsysflow.analyze(to_trace(marked))) == validity.recorded_idle(Report(marked))


def test_a_note_says_how_much_idle_time_inside_graphs_is_the_recordings() -> None:
    notes = {note.kind: note.text for note in nsysflow.analyze(GRAPHS).notes}
    assert notes[NoteKind.SLOWED_GRAPHS] == (
        "idle inside CUDA graphs: 38.4 us a step, of which up to 29.3 us is the recording's, as a"
        " step takes 29.3 us longer than before the window; to trace each graph as a whole:"
        " nsysflow profile --graph-trace graph -- python train.py"
    )
