"""Why a run that was to capture a window of steps left no report."""

from collections.abc import Sequence
from shlex import join, quote
from typing import Final

from nsysflow.base.errors import CaptureError
from nsysflow.nsys import LAST_NVTX, records_nvtx
from nsysflow.profiling.plan import Plan
from nsysflow.runs.manifest import LOG, Annotation
from nsysflow.runtime.child_status import ChildStatus
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
        found = f", and {annotation.missing}" if annotation and annotation.missing else ""
        return CaptureError(
            f"{_NEVER_OPENED}: the program did not use nsysflow.steps{found}", f"Put {loop}"
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
