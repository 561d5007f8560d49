"""The notes on a run say what is missing from its report."""

from dataclasses import replace
from typing import Final

import polars as pl
import pytest

from nsysflow.analysis import schema
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.trace import Trace
from nsysflow.runs.manifest import Annotation, Manifest
from nsysflow.runs.notes import expected_notes, run_notes
from tests.runs.runs import CHILD, RUN

RANGE: Final = {"kind": "push_pop", "start_ns": 0, "end_ns": 1, "thread": 1, "name": "step"}
RANGES: Final = schema.RANGES.to_frame().vstack(
    pl.DataFrame([{name: RANGE.get(name) for name in schema.RANGES}], schema=schema.RANGES)
)


def wait(length_ns: int) -> pl.DataFrame:
    """One call."""
    row = {"start_ns": 0, "end_ns": length_ns, "thread": 1, "name": "cudaStreamSynchronize"}
    return pl.DataFrame([row], schema=schema.CALLS)


HEALTHY: Final = Trace(report="report", ranges=RANGES)
EMPTY: Final = Trace(report="report")
WITH_A_WAIT: Final = replace(HEALTHY, calls=wait(20_001))

WELL: Final = Annotation(hooked=True, torch=True)
TORCHLESS: Final = Annotation(hooked=True, torch=False)
UNHOOKED: Final = Annotation(hooked=False, torch=False)
FAILED: Final = Annotation(hooked=True, torch=False, problem="KeyError: 'x'")
WITHOUT_RANGES: Final = replace(RUN, children=(replace(CHILD, ranges=0, steps=0),))


def notes(run: Manifest, trace: Trace) -> list[str]:
    return [note.text for note in run_notes(run, trace)]


def with_child(**changed: object) -> Manifest:
    """The healthy run, with these changes to its one process."""
    return replace(RUN, children=(replace(CHILD, **changed),))  # type: ignore[arg-type]


def test_a_run_that_recorded_everything_has_no_notes() -> None:
    assert notes(RUN, HEALTHY) == []


def test_lines_of_waits_are_missed_only_where_a_python_program_waited() -> None:
    asked = replace(RUN, backtraces="waits")
    assert notes(asked, HEALTHY) == []
    assert notes(asked, replace(HEALTHY, calls=wait(20_000))) == []
    assert notes(replace(asked, children=()), WITH_A_WAIT) == []


@pytest.mark.parametrize(
    ("run", "trace", "said"),
    [
        (RUN, EMPTY, "opened 24 NVTX ranges and none was recorded: nvtx 0.2.16"),
        (with_child(versions={"nvtx": "0.2.11"}), EMPTY, "forked without an exec"),
        (replace(RUN, backtraces="all"), HEALTHY, "holds no Python lines"),
        (replace(RUN, backtraces="waits"), WITH_A_WAIT, "holds no Python lines"),
        (replace(RUN, gpu_metrics=True), HEALTHY, "holds no GPU counters"),
        (replace(RUN, interrupted=True, exit_code=130), HEALTHY, "the run was interrupted"),
        (replace(RUN, exit_code=3), HEALTHY, "failed (exit code 3)"),
        (
            with_child(window="open", captured=1),
            HEALTHY,
            "captured 1 of 5 steps: the loop ended early",
        ),
        (
            with_child(window="open", captured=5),
            HEALTHY,
            "captured 5 of 5 steps: the program ended during the last one",
        ),
        (
            replace(with_child(window="open", captured=4), interrupted=True),
            HEALTHY,
            "until then: 4 of 5 steps",
        ),
        (
            replace(with_child(window="open", captured=2), exit_code=3),
            HEALTHY,
            "failed (exit code 3, 2 of 5 steps captured)",
        ),
        (replace(RUN, processes=2), HEALTHY, "1 of 2 ranks left a report"),
        (replace(RUN, annotation=UNHOOKED), HEALTHY, "python -I, -E and -S keep it out"),
        (replace(RUN, annotation=FAILED), HEALTHY, "automatic steps and phases: KeyError: 'x'"),
        (replace(WITHOUT_RANGES, annotation=UNHOOKED), EMPTY, "python -I, -E and -S keep it out"),
        (
            replace(WITHOUT_RANGES, annotation=TORCHLESS),
            EMPTY,
            "no process of the program imported",
        ),
        (
            replace(with_child(at_end=False), annotation=WELL),
            HEALTHY,
            "number of its steps is unknown",
        ),
        (replace(RUN, children=(), annotation=WELL), HEALTHY, "os._exit or a signal ended"),
        (replace(RUN, delay_s=60.0), HEALTHY, "the first 60 s of the run are not recorded"),
        (replace(RUN, duration_s=2.5), HEALTHY, "ended before the 2.5 s of --duration were over"),
        (replace(RUN, stopped=True), HEALTHY, "with SIGTERM, since the window had been recorded"),
        (
            replace(RUN, stopped=True, duration_s=2.5),
            HEALTHY,
            "with SIGTERM, since 2.5 s had been recorded",
        ),
        (replace(RUN, stopped=True, exit_code=143), HEALTHY, "recorded (exit code 143)"),
    ],
)
def test_one_note_says_what_is_missing(run: Manifest, trace: Trace, said: str) -> None:
    (note,) = run_notes(run, trace)
    assert said in note.text
    assert note.kind == NoteKind.RUN


@pytest.mark.parametrize("annotation", [WELL, TORCHLESS])
def test_a_program_with_ranges_lacks_nothing_without_torch(annotation: Annotation) -> None:
    assert notes(replace(RUN, annotation=annotation), HEALTHY) == []


def test_a_program_that_we_ended_has_one_note_though_nobody_saw_its_end() -> None:
    run = replace(with_child(at_end=False), annotation=WELL, stopped=True, exit_code=143)
    assert len(notes(run, HEALTHY)) == 1


def test_a_program_killed_inside_its_window_did_not_leave_its_loop_early() -> None:
    killed = with_child(window="open", captured=0, at_end=False)
    (note,) = notes(killed, EMPTY)
    assert note.startswith("os._exit or a signal ended the program inside the window of --capture")
    (failed,) = notes(replace(killed, exit_code=137), HEALTHY)
    assert "(exit code 137)" in failed  # without a number of steps, which is unknown


def test_a_program_killed_after_its_window_may_have_a_too_new_nvtx() -> None:
    (note,) = notes(with_child(at_end=False), EMPTY)
    assert "nvtx 0.2.16 may be too new" in note


def test_the_rank_that_captured_least_is_counted() -> None:
    ranks = tuple(replace(CHILD, rank=n, window="open", captured=3 - n) for n in range(2))
    run = replace(RUN, processes=2, reports=("rank0.sqlite", "rank1.sqlite"), children=ranks)
    assert notes(run, HEALTHY) == ["captured 2 of 5 steps: the loop ended early"]


def test_without_a_requested_window_steps_are_not_counted() -> None:
    run = replace(with_child(window="open", captured=1), capture=None)
    assert notes(run, HEALTHY) == []


def test_a_run_without_a_gpu_lacks_no_gpu_work() -> None:
    no_work = Note(NoteKind.NO_GPU_WORK, "no GPU work")
    other = Note(NoteKind.UNKNOWN_COLUMNS, "a new column")
    trace = replace(HEALTHY, notes=(no_work, other))
    on_cpu = replace(RUN, on="cpu")
    assert expected_notes(RUN, trace) == (no_work, other)
    assert expected_notes(on_cpu, trace) == (other,)
    assert notes(on_cpu, trace) == [
        "this run was made with --on cpu: it recorded ranges only, no GPU work"
    ]


def test_a_program_without_ranges_gets_one_note_on_how_to_mark_them() -> None:
    trace = replace(EMPTY, notes=(Note(NoteKind.NO_RANGES, "no NVTX ranges"),))
    run = replace(RUN, children=())
    assert expected_notes(run, trace) == ()
    (note,) = notes(run, trace)
    assert "nsysflow.region" in note


def test_a_program_with_steps_but_without_nvtx_gets_a_note_to_install_it() -> None:
    (note,) = notes(with_child(ranges=0, versions={"python": "3.12.1"}), EMPTY)
    assert "need the nvtx package" in note
    assert "pip install nvtx" in note
    assert "opened none" not in note


def test_ranges_that_were_not_traced_are_not_missing() -> None:
    assert notes(replace(RUN, trace=("cuda",)), EMPTY) == []
