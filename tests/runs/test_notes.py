"""The notes on a run say what is missing from its report."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.runs.manifest import Annotation, Manifest
from nsysflow.runs.notes import run_notes
from nsysflow.runtime.durations import LONGEST, Durations
from tests.runs.runs import CHILD, RUN
from tests.tiny import call, opened, trace_of

STEP: Final = opened(0, 1, "step")
HEALTHY, EMPTY = trace_of(STEP), trace_of()


def with_a_wait(length_ns: int) -> Trace:
    return trace_of(STEP, call(0, length_ns, "cudaStreamSynchronize"))


WELL: Final = Annotation(hooked=True, torch=True)
TORCHLESS: Final = Annotation(hooked=True, torch=False)
UNHOOKED: Final = Annotation(hooked=False, torch=False)
FAILED: Final = Annotation(hooked=True, torch=False, problem="KeyError: 'x'")


def run(child: dict[str, Any] | None = None, **changed: Any) -> Manifest:
    """The healthy run, with changes to its one process and to itself."""
    return replace(RUN, **{"children": (replace(CHILD, **(child or {})),)} | changed)


def inside(captured: int) -> dict[str, Any]:
    """A process that ended in its window after so many steps."""
    return {"window": "open", "captured": captured}


KILLED: Final = {"at_end": False}
KILLED_INSIDE: Final = inside(0) | KILLED
NO_RANGES: Final = {"ranges": 0, "steps": 0}
NO_NVTX: Final = {"ranges": 0, "versions": {"python": "3.12.1"}}
RANKS: Final = tuple(replace(CHILD, rank=n, **inside(3 - n)) for n in range(2))


@pytest.mark.parametrize(
    ("run", "trace", "said"),
    [
        (run(), EMPTY, "opened 24 NVTX ranges and none was recorded: nvtx 0.2.16 may be too new"),
        (run({"versions": {"nvtx": "0.2.11"}}), EMPTY, "forked without an exec"),
        (run(NO_NVTX), EMPTY, "need the nvtx package in the program's Python. Install it there"),
        (run(children=()), EMPTY, "Mark them with nsysflow.region"),
        (run(backtraces="all"), HEALTHY, "holds no Python lines"),
        (run(backtraces="waits"), with_a_wait(20_001), "holds no Python lines"),
        (run(gpu_metrics=True), HEALTHY, "holds no GPU counters"),
        (run(on="cpu"), HEALTHY, "made with --on cpu: it recorded ranges only, no GPU work"),
        (run(interrupted=True, exit_code=130), HEALTHY, "the run was interrupted"),
        (run(exit_code=3), HEALTHY, "failed (exit code 3)"),
        (run(inside(1)), HEALTHY, "captured 1 of 5 steps: the loop ended early"),
        (run(inside(4), interrupted=True), HEALTHY, "until then: 4 of 5 steps"),
        (run(inside(2), exit_code=3), HEALTHY, "failed (exit code 3, 2 of 5 steps captured)"),
        # of ranks, the one that captured least is counted
        (run(processes=2, reports=("0", "1"), children=RANKS), HEALTHY, "captured 2 of 5 steps: t"),
        (run(KILLED_INSIDE), EMPTY, "os._exit or a signal ended the program inside the window of"),
        (run(KILLED, annotation=WELL), HEALTHY, "number of its steps is unknown"),
        (run(children=(), annotation=WELL), HEALTHY, "os._exit or a signal ended"),
        (run(annotation=UNHOOKED), HEALTHY, "python -I, -E and -S keep it out"),
        (run(annotation=FAILED), HEALTHY, "automatic steps and phases: KeyError: 'x'"),
        (run(NO_RANGES, annotation=UNHOOKED), EMPTY, "python -I, -E and -S keep it out"),
        (run(NO_RANGES, annotation=TORCHLESS), EMPTY, "no process of the program imported"),
        (run(delay_s=60.0), HEALTHY, "the first 60 s of the run are not recorded"),
        (run(duration_s=2.5), HEALTHY, "ended before the 2.5 s of --duration were over"),
        (run(stopped=True), HEALTHY, "with SIGTERM, since the window had been recorded"),
        # nobody saw the end of a program that we ended
        (run(KILLED, annotation=WELL, stopped=True, exit_code=143), HEALTHY, "(exit code 143)"),
    ],
)
def test_one_note_says_what_is_missing(run: Manifest, trace: Trace, said: str) -> None:
    (note,) = run_notes(run, trace)
    assert said in note.text
    assert note.kind == NoteKind.RUN


@pytest.mark.parametrize(
    ("run", "trace"),
    [
        (run(), HEALTHY),
        (run(annotation=WELL), HEALTHY),
        (run(annotation=TORCHLESS), HEALTHY),  # it has ranges of its own
        (run(backtraces="waits"), HEALTHY),  # no Python program waited
        (run(backtraces="waits"), with_a_wait(20_000)),
        (run(backtraces="waits", children=()), with_a_wait(20_001)),
        (run(inside(1), capture=None), HEALTHY),  # steps are counted in a requested window only
        (run(trace=("cuda",)), EMPTY),
    ],
)
def test_what_was_not_to_be_recorded_is_not_missing(run: Manifest, trace: Trace) -> None:
    assert run_notes(run, trace) == ()


MS: Final = 1_000_000
OFTEN: Final = range(100, 4_200, 350)
JITTERING: Final = [110, 460, 800, 1_150, 1_520]


def later(
    count: int, pauses: Sequence[int], *, pause_ms: int = 1_200, first: int = 200
) -> Manifest:
    """A run that went on for so many steps of 4 ms, some of which took longer."""
    durations = Durations(first)
    for number in range(first, first + count):
        durations.add(number, 4 * MS + (number - first in pauses) * pause_ms * MS)
    return run({"later": durations.summary()})


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (later(4_200, OFTEN),
         "4,200 steps, mean 7.43 ms; 12 of them took 1.20 s longer, about every 350"),
        (later(1_600, JITTERING), "5 of them took 1.20 s longer, about every 350 steps: not"),
        (later(4_200, [100, 700, 3_000, 4_000]), "4 of them took 1.20 s longer: not recorded;"),
        (later(4_200, [700]), "1 of them took 1.20 s longer: not recorded;"),
        (later(40_000, range(0, 40_000, 500)),
         f"at least {LONGEST} of them took 1.20 s longer: not"),
    ],
)  # fmt: skip
def test_pauses_rarer_than_the_recording_are_said(manifest: Manifest, said: str) -> None:
    (text,) = texts(manifest)
    assert text.startswith("after the recording: ")
    assert said in text


@pytest.mark.parametrize(
    "manifest",
    [
        later(4_200, []),
        later(4_200, OFTEN, pause_ms=3),  # not twice a step
        later(4_200, [700], pause_ms=800),  # 5 % of the time of all steps
        later(4_200, range(0, 4_200, 150)),  # the recording has some
        run({"later": None}),
    ],
)
def test_other_steps_after_the_recording_are_not_worth_a_note(manifest: Manifest) -> None:
    assert texts(manifest) == []


def texts(manifest: Manifest) -> list[str]:
    return [note.text for note in run_notes(manifest, HEALTHY)]
