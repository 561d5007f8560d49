"""Why a run left no report, or failed: the error to raise."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import Final

from nsysflow.base.errors import CaptureError, ChildFailed, ExitCode, NsysflowError
from nsysflow.nsys.program import LAST_NVTX, records_nvtx
from nsysflow.record.plan import Plan
from nsysflow.record.program import ProgramEnd
from nsysflow.runs.manifest import LOG, Annotation
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import Window

_NEVER_OPENED: Final = "the capture window never opened, so nothing was recorded"
_NOTHING: Final = "nothing was recorded"


def no_window_error(
    plan: Plan, window: Window, children: Sequence[ChildStatus], annotation: Annotation | None
) -> CaptureError:
    """Why there is no report, from what the program's processes reported."""
    opened = [child for child in children if child.window != "never"]
    if opened:
        reason = _not_recorded_by_kineto if plan.collector == "kineto" else _not_seen_by_nsys
        return reason(plan, opened)
    steps = max((child.steps for child in children), default=0)
    if steps:
        return _too_few_steps(steps, window)
    without_steps = (
        "record with nsys, which needs no change to the program (see nsysflow doctor)"
        if plan.collector == "kineto"
        else "leave out --capture to record the whole run"
    )
    loop = f"its loop into `for batch in nsysflow.steps(loader):`, or {without_steps}"
    if not children:
        missing = f", and {annotation.missing}" if annotation and annotation.missing else ""
        return CaptureError(
            f"{_NEVER_OPENED}: the program did not use nsysflow.steps{missing}", f"Put {loop}"
        )
    return CaptureError(
        f"{_NEVER_OPENED}: no step was reported, and --capture {window} starts at step"
        f" {_first_step(window)}",
        "If the program uses nsysflow.steps, its loop was empty, or os._exit ended it first. If it"
        f" does not, put {loop}",
    )


def ended_inside_window(plan: Plan, children: Sequence[ChildStatus]) -> str:
    """Half a sentence if a process ended before it could write torch.profiler's trace, or ''."""
    if plan.collector != "kineto" or all(child.window != "open" for child in children):
        return ""
    return (
        ", because it ended inside the window of --capture: torch.profiler writes its trace when"
        " the window closes or Python ends by itself, not after a signal or os._exit"
    )


def _too_few_steps(steps: int, window: Window) -> CaptureError:
    warmup = min(steps - 1, 1)
    ran = f"{steps} step{'s' if steps > 1 else ''} ran"
    return CaptureError(
        f"{_NEVER_OPENED}: {ran}, and --capture {window} starts at step {_first_step(window)}",
        f"Run more steps, or capture earlier ones: --capture 0:{warmup}:{steps - warmup}",
    )


def _first_step(window: Window) -> int:
    """The first step of a window, counted from 1."""
    return window.wait + window.warmup + 1


def _not_recorded_by_kineto(plan: Plan, opened: Sequence[ChildStatus]) -> CaptureError:
    if not _loaded_version("torch", opened):
        return CaptureError(
            f"{_NOTHING}: torch.profiler records this run, and the program's Python has no torch",
            "Install it there, or record with nsys (see nsysflow doctor)",
            "pip install torch",
        )
    if any(child.window == "open" for child in opened):
        return CaptureError(
            f"{_NOTHING}: the program ended inside the window of --capture. torch.profiler writes"
            " its trace when the window closes or Python ends by itself, not after os._exit",
            "Let the program end by itself, or capture fewer steps with --capture",
        )
    return CaptureError(
        f"{_NOTHING}: the steps of the window ran, but torch.profiler left no trace. A profiler of"
        " the program's own may block ours",
        "See the log",
        f"cat {quote(str(plan.request.folder / LOG))}",
    )


def _not_seen_by_nsys(plan: Plan, opened: Sequence[ChildStatus]) -> CaptureError:
    """Why nsys did not see a window whose steps ran: torch opens it on a GPU, nvtx on the CPU."""
    if plan.request.on == "cuda":
        why = (
            "the process had not used CUDA when its window came (is the model on the GPU?)"
            if _loaded_version("torch", opened)
            else "only torch can open the window on a GPU, and the program had not loaded it"
        )
        return _record_whole_run(plan, why)
    nvtx = _loaded_version("nvtx", opened)
    if not nvtx:
        return CaptureError(
            f"{_NEVER_OPENED}: the steps ran, but nsys sees them only through the nvtx package,"
            " which the program's Python lacks",
            "Install it there",
            "pip install nvtx",
        )
    nsys = plan.nsys.version_text if plan.nsys is not None else ""
    if not records_nvtx(nvtx, nsys=nsys):
        return CaptureError(
            f"{_NEVER_OPENED}: the steps ran, but nvtx {nvtx} may be too new for nsys {nsys}",
            "Use a newer nsys, or an older nvtx",
            f"pip install 'nvtx<={'.'.join(map(str, LAST_NVTX))}'",
        )
    return _record_whole_run(
        plan, "nsys did not see them: it does not follow processes that are forked without an exec"
    )


def _record_whole_run(plan: Plan, why: str) -> CaptureError:
    on_cpu = ["--on", "cpu"] if plan.request.on == "cpu" else []
    return CaptureError(
        f"{_NEVER_OPENED}: the steps ran, but {why}",
        "Record the whole run to find out",
        join(["nsysflow", "profile", *on_cpu, "--", *plan.request.command]),
    )


def _loaded_version(package: str, children: Sequence[ChildStatus]) -> str:
    """The version of a package that a process had loaded; empty if none had."""
    return next((child.versions[package] for child in children if package in child.versions), "")


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
    end = replace(end, last_lines=(*end.last_lines, *end.nsys_said))
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
        output=end.nsys_said,
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
