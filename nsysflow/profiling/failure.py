"""Why a run left no report, or failed: the error to raise."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shlex import join, quote
from typing import Final

from nsysflow.base.errors import CaptureError, ChildFailed, ExitCode, NsysflowError
from nsysflow.profiling.no_window import ended_inside_window, no_window_error
from nsysflow.profiling.plan import Plan
from nsysflow.profiling.program import ProgramEnd
from nsysflow.runs.manifest import LOG, Annotation
from nsysflow.runtime.child_status import ChildStatus

_FULL_BELOW_BYTES: Final = 16 << 20
"""A disk with less free space counts as full: nsys fails in many ways then."""

_SHOWN_WORDS: Final = 3
_SHOWN: Final = 60
"""How much of a command an error shows: words, and characters of each."""

_REFUSED: Final = "usage: nsys profile"
"""What nsys prints for an option that it does not take, before it starts anything."""

_CRASHED: Final = re.compile(
    r"Connection to Agent lost|\bQuadD\w+::|\A(?:End of file|Connection reset by peer)\s*\Z"
)
"""What nsys 2023.4 prints, about once in 70 runs on a busy machine, before it exits with 1 or 0 and
no report (docs/facts.md). The last two count only as all that was printed, before the program."""

_NO_PERMISSION: Final = re.compile(r"ERR_NVGPUCTRPERM|[Ii]nsufficient privilege")


def nsys_crashed(output: str) -> bool:
    """Whether this is the output of an nsys that lost its own agent."""
    return _CRASHED.search(output) is not None


def no_report_error(
    plan: Plan,
    end: ProgramEnd,
    children: Sequence[ChildStatus],
    annotation: Annotation | None = None,
) -> CaptureError:
    """Why a run left none of the reports that it should."""
    output = "\n".join(end.last_lines)
    if end.interrupted:
        return _failed(plan, end, "nothing had been captured")
    if _disk_is_full(plan.request.folder):
        return _disk_full(plan)
    if _NO_PERMISSION.search(output):
        return _no_permission()
    recorded = sorted(path.name for path in plan.request.folder.glob("*.qdstrm"))
    if recorded:
        return CaptureError(
            f"nsys recorded the run but could not finish its report: {recorded[0]} in"
            f" {plan.request.folder} is an unfinished nsys recording",
            "See what is wrong with this nsys",
            "nsysflow doctor",
        )
    if _REFUSED in output:
        return CaptureError(
            "nsys refused its options and did not start the program",
            "Check --trace and --nsys-arg; --dry-run shows the options that nsys was given",
            output=end.last_lines,
        )
    if nsys_crashed(output):
        return CaptureError(
            "nsys crashed; your program did not. It lost the connection to its own agent",
            "Run the same command again, with --force",
            output=end.last_lines,
        )
    if end.exit_code:
        return _failed(plan, end, f"no report was written{ended_inside_window(plan, children)}")
    if plan.window is not None:
        return no_window_error(plan, plan.window, children, annotation)
    return CaptureError(
        f"nsys exited normally but wrote no report; its output is in {plan.request.folder / LOG}",
        "See whether this nsys works here at all",
        "nsysflow doctor",
    )


def program_failed(plan: Plan, end: ProgramEnd, reports: Sequence[str]) -> ChildFailed:
    """The program's failure, for a run that left reports."""
    return _failed(plan, end, f"what was captured until then is kept: {', '.join(reports)}")


def export_failed(plan: Plan, end: ProgramEnd, why: NsysflowError) -> ChildFailed:
    """The program's failure, for a run whose report cannot be exported either."""
    return _failed(plan, end, why.seen)


def _failed(plan: Plan, end: ProgramEnd, consequence: str) -> ChildFailed:
    what = "was interrupted" if end.interrupted else "failed"
    return ChildFailed(
        f"{_short(plan.request.command)} {what} with exit code {end.exit_code}; {consequence}",
        "See all of its output",
        f"cat {quote(str(plan.request.folder / LOG))}",
        exit_code=end.exit_code or ExitCode.INTERRUPTED,
        output=end.last_lines,
    )


def _short(command: Sequence[str]) -> str:
    """The first words of a command, on one line."""
    words = [" ".join(word.split()) for word in command[:_SHOWN_WORDS]]
    shown = join([word if len(word) <= _SHOWN else word[:_SHOWN] + "…" for word in words])
    return shown if len(command) <= _SHOWN_WORDS else f"{shown} …"


def _no_permission() -> CaptureError:
    return CaptureError(
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM), so nsys did not"
        " start",
        "Run as root, leave out --gpu-metrics, or allow it for all users and reboot",
        "echo options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        " | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
    )


def _disk_is_full(folder: Path) -> bool:
    places = (folder, Path(tempfile.gettempdir()))
    return any(shutil.disk_usage(place).free < _FULL_BELOW_BYTES for place in places)


def _disk_full(plan: Plan) -> CaptureError:
    return CaptureError(
        f"the disk is full: nsys could not write its report to {plan.request.folder}, or its"
        f" temporary file to {tempfile.gettempdir()}",
        "Choose another disk with -o DIR and TMPDIR, capture less (--capture, fewer --trace), or"
        " make room",
        "df -h",
    )
