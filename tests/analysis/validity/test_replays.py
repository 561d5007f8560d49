"""Idle time inside CUDA graphs, and how much of it is the recording's (spec §12.8)."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.declared.notes import NoteKind
from nsysflow.analysis.validity.replays import RecordedIdle, recorded_idle
from tests.analyses import analysed, any_trace, every_report, oracle_of
from tests.oracle import replays
from tests.oracle.model import Capture, PlainTrace, to_trace
from tests.oracle.report import Report
from tests.reports import ROOT

GRAPHS = ROOT / "samples" / "launch_bound-graph.sqlite.xz"


def found(analysis: nsysflow.Analysis) -> tuple[int, int] | None:
    """Idle time inside the graphs of a step, and how much longer than unprofiled it is."""
    idle = recorded_idle(analysis.judged.view)
    return None if idle is None else (idle.idle_ns, idle.longer_ns)


@any_trace
def test_idle_time_inside_graphs_of_any_trace_agrees_with_the_oracle(model: PlainTrace) -> None:
    processes = {op.process for op in model.ops}
    marked = replace(model, captures=tuple(Capture(each, "1:1:1", 1) for each in processes))
    assert found(nsysflow.analyze(to_trace(marked))) == replays.recorded_idle(Report(marked))


@every_report
def test_idle_time_inside_graphs_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert found(analysed(name)) == replays.recorded_idle(oracle_of(name))


@pytest.mark.parametrize(("idle_ns", "longer_ns", "added_ns"), [(9, 4, 4), (4, 9, 4)])
def test_the_recording_adds_no_more_than_it_takes_and_than_there_is(
    idle_ns: int, longer_ns: int, added_ns: int
) -> None:
    assert RecordedIdle(idle_ns=idle_ns, longer_ns=longer_ns).added_ns == added_ns


def test_a_note_says_how_much_idle_time_inside_graphs_is_the_recordings() -> None:
    notes = {note.kind: note.text for note in nsysflow.analyze(GRAPHS).notes}
    assert notes[NoteKind.SLOWED_GRAPHS] == (
        "idle inside CUDA graphs: 38.4 us a step, of which up to 29.3 us is the recording's, as a"
        " step takes 29.3 us longer than unprofiled; to trace each graph as a whole: nsysflow"
        " profile --graph-trace graph -- python train.py"
    )
