"""The notes on a run say what is missing from its report."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.runs.manifest import Annotation, Manifest
from nsysflow.runs.notes import run_notes
from nsysflow.runtime.durations import Durations
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


INCOMPLETE: Final[tuple[tuple[Trace, list[Manifest]], ...]] = (
    (EMPTY, [
        *(run(), run({"versions": {"nvtx": "0.2.11"}}), run(NO_NVTX), run(children=())),
        *(run(NO_RANGES, annotation=UNHOOKED), run(NO_RANGES, annotation=TORCHLESS)),
        run(KILLED_INSIDE),
    ]),
    (with_a_wait(20_001), [run(backtraces="waits")]),
    (HEALTHY, [
        *(run(backtraces="all"), run(gpu_metrics=True), run(on="cpu")),
        *(run(interrupted=True, exit_code=130), run(exit_code=3)),
        *(run(inside(1)), run(inside(4), interrupted=True), run(inside(2), exit_code=3)),
        # of ranks, the one that captured least is counted
        run(processes=2, reports=("0", "1"), children=RANKS),
        *(run(KILLED, annotation=WELL), run(children=(), annotation=WELL)),
        *(run(annotation=UNHOOKED), run(annotation=FAILED)),
        *(run(delay_s=60.0), run(duration_s=2.5), run(stopped=True)),
        # nobody saw the end of a program that we ended
        run(KILLED, annotation=WELL, stopped=True, exit_code=143),
        # pauses rarer than the recording
        *(later(4_200, OFTEN), later(1_600, JITTERING), later(4_200, [100, 700, 3_000, 4_000])),
        *(later(4_200, [700]), later(40_000, range(0, 40_000, 500))),
    ]),
)  # fmt: skip
"""What is noted of each is in tests/report/pages/run-notes.txt: one note."""


def noted() -> Iterator[str]:
    for trace, every in INCOMPLETE:
        for one in every:
            (note,) = run_notes(one, trace)
            assert note.kind == NoteKind.RUN
            yield note.text


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
        # other steps after the recording are not worth a note
        (later(4_200, []), HEALTHY),
        (later(4_200, OFTEN, pause_ms=3), HEALTHY),  # not twice a step
        (later(4_200, [700], pause_ms=800), HEALTHY),  # 5 % of the time of all steps
        (later(4_200, range(0, 4_200, 150)), HEALTHY),  # the recording has some
        (run({"later": None}), HEALTHY),
    ],
)
def test_what_was_not_to_be_recorded_is_not_missing(run: Manifest, trace: Trace) -> None:
    assert run_notes(run, trace) == ()
