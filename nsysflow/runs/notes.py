"""Notes on a run: what was asked for, or happened, and is not in its report.

A profiler that cannot record something mostly says nothing. The manifest and the report together
show what is missing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import polars as pl

from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.units import duration
from nsysflow.nsys.program import LAST_NVTX, WAIT_NS, records_nvtx
from nsysflow.runs.manifest import Manifest
from nsysflow.runtime.durations import LONGEST, LaterSteps
from nsysflow.runtime.protocol import Window

_KEPT: Final[Mapping[NoteKind, Callable[[Manifest], bool]]] = {
    NoteKind.NO_GPU_WORK: lambda manifest: manifest.on == "cuda",
    NoteKind.NO_RANGES: lambda manifest: "nvtx" not in manifest.trace,
}
"""The runs whose reports keep these notes of the loader; other notes are always kept."""


def expected_notes(manifest: Manifest, trace: Trace) -> tuple[Note, ...]:
    """The report's own notes, without those on what the run was not to record."""
    dropped = [kind for kind, kept in _KEPT.items() if not kept(manifest)]
    return tuple(note for note in trace.notes if note.kind not in dropped)


def run_notes(manifest: Manifest, trace: Trace) -> tuple[Note, ...]:
    """What the run was to record and did not, and how it ended early; each with what to do."""
    texts = [
        *_missing_ranges(manifest, trace),
        *_missing_annotation(manifest, trace),
        *_recorded_period(manifest),
        *_plain_run(manifest),
        *_missing_ranks(manifest),
        *_ended_early(manifest),
        *_missing_details(manifest, trace),
        *_later_pauses(manifest),
    ]
    return tuple(Note(NoteKind.RUN, text) for text in texts)


def _missing_ranges(manifest: Manifest, trace: Trace) -> Iterator[str]:
    if "nvtx" not in manifest.trace or not trace.ranges.is_empty():
        return
    opened = sum(child.ranges for child in manifest.children)
    if opened:
        yield from _lost_ranges(manifest, opened)
    elif any(child.steps and "nvtx" not in child.versions for child in manifest.children):
        yield (
            "no NVTX ranges in this report: nsysflow.steps and nsysflow.region need the nvtx"
            " package in the program's Python. Install it there: pip install nvtx"
        )
    else:
        why = manifest.annotation and manifest.annotation.missing
        yield (
            "no NVTX ranges in this report, so idle time has no phases: the program opened none"
            f"{f', and {why}' if why else ''}. Mark them with nsysflow.region and nsysflow.steps,"
            " and install nvtx in the program's Python"
        )


def _missing_annotation(manifest: Manifest, trace: Trace) -> Iterator[str]:
    """Why the ranges and steps are missing that PyTorch programs get from us, or some of them."""
    found = manifest.annotation
    if found is None:
        return
    if found.missing is None:
        if _ended_unseen(manifest):
            yield (
                "os._exit or a signal ended the program: its last ranges may be missing, and the"
                " number of its steps is unknown"
            )
    elif not trace.ranges.is_empty() and (found.problem or not found.hooked):
        yield f"no automatic steps and phases: {found.missing}"


def _ended_unseen(manifest: Manifest) -> bool:
    """Whether it ended without an error, but not as Python ends: no process saved its status."""
    why = manifest.exit_code or manifest.interrupted or manifest.stopped
    seen = any(child.at_end for child in manifest.children) or _killed_in_window(manifest)
    return not why and not seen


def _recorded_period(manifest: Manifest) -> Iterator[str]:
    """Which part of the run was recorded, and whether we ended it."""
    if manifest.delay_s:
        yield f"the first {manifest.delay_s:g} s of the run are not recorded, as --delay asked"
    if manifest.stopped:
        what = f"{manifest.duration_s:g} s" if manifest.duration_s else "the window"
        code = f" (exit code {manifest.exit_code})" if manifest.exit_code else ""
        yield f"nsysflow ended the program with SIGTERM, since {what} had been recorded{code}"
    elif manifest.duration_s:
        yield f"the program ended before the {manifest.duration_s:g} s of --duration were over"


def _plain_run(manifest: Manifest) -> Iterator[str]:
    """Why the plain run gave no time of a step."""
    if manifest.plain_run is not None and manifest.plain_run.problem is not None:
        yield manifest.plain_run.problem


LONG: Final = 2
"""A step is long from so many medians on."""

LONG_PCT: Final = 5
"""What long steps take beyond the median is said from this share of the time of all steps on."""

_JITTER: Final = 0.1
"""Distances of steps that recur differ by at most so much."""


def _later_pauses(manifest: Manifest) -> Iterator[str]:
    """That long steps came after the recording, too rare to be expected in it; of the process that
    lost most in them."""
    pauses = [
        pauses
        for child in manifest.children
        if child.later is not None and (pauses := _pauses(child.later)) is not None
    ]
    if not pauses:
        return
    worst = max(pauses, key=lambda each: each.extra_ns * len(each.numbers))
    later, some = worst.later, len(worst.numbers)
    least = "at least " * (some == LONGEST)
    mean_ns = later.total_ns // later.count
    yield (
        f"after the recording: {later.count:,} steps, mean {duration(mean_ns)};"
        f" {least}{some} of them took {duration(worst.extra_ns)} longer{worst.every}: not recorded;"
        " nsysflow profile --record-all shows where"
    )


@dataclass(frozen=True, kw_only=True)
class _Pauses:
    """Long steps after a recording.

    Attributes:
        later: all steps after it.
        numbers: the numbers of the long ones.
        extra_ns: how much longer than the median they took, on average.
    """

    later: LaterSteps
    numbers: list[int]
    extra_ns: int

    @property
    def every(self) -> str:
        """`, about every 350 steps`, if their distances agree; empty if not."""
        distances = [b - a for a, b in pairwise(self.numbers)]
        if len(distances) < 3 or len(self.numbers) == LONGEST:
            return ""
        middle = median(distances)
        agree = all(abs(each - middle) <= max(1, _JITTER * middle) for each in distances)
        return f", about every {middle:.0f} steps" if agree else ""


def _pauses(later: LaterSteps) -> _Pauses | None:
    """The long steps, if they matter and are rarer than the steps that came before them."""
    long = [(number, ns) for number, ns in later.longest if ns >= LONG * later.median_ns]
    extra_ns = sum(ns - later.median_ns for _, ns in long)
    rare = later.count > later.first * len(long)
    if not long or not rare or 100 * extra_ns < LONG_PCT * later.total_ns:
        return None
    numbers = [number for number, _ in long]
    return _Pauses(later=later, numbers=numbers, extra_ns=extra_ns // len(long))


def _lost_ranges(manifest: Manifest, opened: int) -> Iterator[str]:
    if _killed_in_window(manifest):
        return  # nsys loses what it had not yet taken, whatever it understands
    lost = f"the program opened {opened} NVTX ranges and none was recorded"
    nsys = manifest.versions.get("nsys", "")
    versions = [child.versions for child in manifest.children]
    nvtx = next((each["nvtx"] for each in versions if "nvtx" in each), "")
    if records_nvtx(nvtx, nsys=nsys):
        yield f"{lost}: nsys does not follow processes that are forked without an exec"
        return
    last = ".".join(map(str, LAST_NVTX))
    yield (
        f"{lost}: nvtx {nvtx} may be too new for nsys {nsys}. Take a newer nsys, or an older nvtx:"
        f" pip install 'nvtx<={last}'"
    )


def _missing_ranks(manifest: Manifest) -> Iterator[str]:
    left, started = len(manifest.reports), manifest.processes or 1
    if left < started:
        yield f"{left} of {started} ranks left a report; see output.log for the others"


def _ended_early(manifest: Manifest) -> Iterator[str]:
    begun, asked = _steps_begun(manifest)
    if manifest.interrupted:
        steps = f": {begun} of {asked} steps" if asked else ""
        yield f"the run was interrupted; the report holds what was captured until then{steps}"
    elif manifest.exit_code and not manifest.stopped:
        steps = f", {begun} of {asked} steps captured" if asked else ""
        yield f"the program failed (exit code {manifest.exit_code}{steps}); the report ends there"
    elif _killed_in_window(manifest):
        yield (
            "os._exit or a signal ended the program inside the window of --capture; what the"
            " profiler had not written by then is lost"
        )
    elif asked:
        why = "the loop ended early" if begun < asked else "the program ended during the last one"
        yield f"captured {begun} of {asked} steps: {why}"


def _missing_details(manifest: Manifest, trace: Trace) -> Iterator[str]:
    if manifest.on == "cpu":
        yield "this run was made with --on cpu: it recorded ranges only, no GPU work"
    if trace.backtraces.is_empty() and _should_hold_lines(manifest, trace):
        yield (
            "the report holds no Python lines of CUDA calls: nsys needs CPU sampling for them"
            " (nsysflow doctor says whether it is allowed here)"
        )
    if manifest.gpu_metrics and trace.gpu_samples.is_empty():
        yield (
            "the report holds no GPU counters although --gpu-metrics was given: this user may not"
            " read them, or another tool is using them (see nsysflow doctor)"
        )


def _should_hold_lines(manifest: Manifest, trace: Trace) -> bool:
    """Whether nsys was to record Python lines, and met a call of a Python program to record."""
    if manifest.backtraces != "waits":
        return manifest.backtraces == "all"
    length = pl.col("end_ns") - pl.col("start_ns")
    return bool(manifest.children) and not trace.calls.filter(length > WAIT_NS).is_empty()


def _killed_in_window(manifest: Manifest) -> bool:
    return not manifest.stopped and any(
        child.window == "open" and not child.at_end for child in manifest.children
    )


def _steps_begun(manifest: Manifest) -> tuple[int, int]:
    """The steps that began in the window of the process that ended earliest inside its own, and the
    steps asked for; zeros if there was no window, or every window closed."""
    inside = [
        child.captured for child in manifest.children if child.at_end and child.window == "open"
    ]
    if not inside or not manifest.capture:
        return 0, 0
    return min(inside), Window.parse(manifest.capture).active
