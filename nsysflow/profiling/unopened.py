"""Why a run that was to capture a window of steps left no report, and what to do."""

from collections.abc import Sequence
from shlex import quote
from typing import Final

from nsysflow.handshake import Told, Window
from nsysflow.nsys import LAST_NVTX, records_nvtx
from nsysflow.profiling.folder import LOG
from nsysflow.profiling.plan import Plan

_NEVER: Final = "the capture range never opened, so nothing was recorded"

_WHOLE_RUN: Final = (
    "Record the whole run to see:\n  nsysflow profile -- COMMAND    (without --capture)"
)


def why_unopened(plan: Plan, window: Window, told: Sequence[Told]) -> str:
    """What the processes said of their steps, as the reason that there is no report."""
    opened = [process for process in told if process.window != "never"]
    if opened:
        why = _unrecorded_kineto if plan.collector == "kineto" else _unseen
        return why(plan, opened)
    counted = max((process.steps for process in told), default=0)
    if counted:
        return _too_few(counted, window)
    otherwise = (
        "record with nsys, which needs no change to the program (nsysflow doctor)"
        if plan.collector == "kineto"
        else "leave --capture out and record the whole run"
    )
    loop = f"its loop into `for batch in nsysflow.steps(loader):`, or {otherwise}"
    if not told:
        return f"{_NEVER}: the program did not use nsysflow.steps. Put {loop}"
    return (
        f"{_NEVER}: the program told of no step, and --capture {window} begins with step"
        f" {_first(window)}. If it uses nsysflow.steps, the loop was empty, or os._exit ended the"
        f" program first; if not, put {loop}"
    )


def ended_inside(plan: Plan, told: Sequence[Told]) -> str:
    """A sentence on a process that ended in its window with no time to write torch.profiler's
    trace; empty where none did."""
    if plan.collector != "kineto" or all(process.window != "open" for process in told):
        return ""
    return (
        "It ended inside the window of --capture, and torch.profiler writes its trace when the"
        " window closes or Python ends by itself: not after a signal or os._exit."
    )


def _too_few(counted: int, window: Window) -> str:
    warmup = min(counted - 1, 1)
    return (
        f"{_NEVER}: {counted} steps ran, and --capture {window} begins with step"
        f" {_first(window)}. Run more steps, or capture earlier ones:\n"
        f"  --capture 0:{warmup}:{counted - warmup}"
    )


def _first(window: Window) -> int:
    """The step that a window begins with, counted from 1."""
    return window.wait + window.warmup + 1


def _unrecorded_kineto(plan: Plan, opened: Sequence[Told]) -> str:
    if not _loaded("torch", opened):
        return (
            "nothing was recorded: the steps ran, but torch.profiler records this run, and the"
            " program's Python has no torch. Install it there, or record with nsys (nsysflow"
            " doctor):\n  pip install torch"
        )
    if any(process.window == "open" for process in opened):
        return (
            "nothing was recorded: the program ended inside the window of --capture, and"
            " torch.profiler never wrote its trace. It does when the window closes or Python ends"
            " by itself, not after os._exit. Let it end so, or capture fewer steps:\n"
            "  --capture WAIT:WARMUP:ACTIVE"
        )
    return (
        "nothing was recorded: the steps of the window ran, but torch.profiler left no trace of"
        " them. A profiler of the program's own keeps ours out; what was said of it:\n"
        f"  cat {quote(str(plan.request.folder / LOG))}"
    )


def _unseen(plan: Plan, opened: Sequence[Told]) -> str:
    """Why nsys did not see the window of steps that ran: on a GPU torch opens it by a CUDA call, on
    the CPU nvtx by a range."""
    if plan.request.on == "cuda":
        why = (
            "CUDA had not been started in that process when the window came: is the model on the"
            " GPU?"
            if _loaded("torch", opened)
            else "only torch can open the window on a GPU, and the program had not loaded it."
        )
        return f"{_NEVER}: the steps ran, but {why} {_WHOLE_RUN}"
    nvtx = _loaded("nvtx", opened)
    if not nvtx:
        return (
            f"{_NEVER}: the steps ran, but the program's Python has no nvtx, which marks them for"
            " nsys. Install it there:\n  pip install nvtx"
        )
    nsys = plan.nsys.version_text if plan.nsys is not None else ""
    if not records_nvtx(nvtx, nsys=nsys):
        last = ".".join(map(str, LAST_NVTX))
        version = f" {nsys}" if nsys else ""
        return (
            f"{_NEVER}: the steps ran, but nvtx {nvtx} may be newer than nsys{version} understands."
            f" Take a newer nsys, or:\n  pip install 'nvtx<={last}'"
        )
    return (
        f"{_NEVER}: the steps ran, but nsys did not see them: it follows no process that is forked"
        f" without an exec. {_WHOLE_RUN}"
    )


def _loaded(package: str, told: Sequence[Told]) -> str:
    """The version that a process had loaded; empty where none had."""
    return next((each.versions[package] for each in told if package in each.versions), "")
