"""What to say when a run left no report, or failed."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nsysflow.errors import CaptureError, ChildFailed, NsysflowError
from nsysflow.handshake import Told
from nsysflow.profiling.folder import LOG
from nsysflow.profiling.plan import Plan
from nsysflow.profiling.run import Ended
from nsysflow.profiling.unopened import ended_inside, why_unopened

_FULL_BELOW_BYTES: Final = 16 << 20
"""A disk with less free than this is taken for full: nsys ends in many ways then."""

_REFUSED: Final = "usage: nsys profile"
"""What nsys prints after an option that it does not take, before it starts anything."""

_LOST_ITSELF: Final = re.compile(
    r"Connection to Agent lost|\bQuadD\w+::|\A(?:End of file|Connection reset by peer)\s*\Z"
)
"""What nsys 2023.4 says, once in some 70 runs on a busy machine, before it ends with 1 or 0 and no
report (docs/facts.md). The bare words were all that it said, the program not begun."""

_NO_PERMISSION: Final = re.compile(r"ERR_NVGPUCTRPERM|[Ii]nsufficient privilege")


def nsys_broke(said: str) -> bool:
    """Whether that is what an nsys says that lost its own agent."""
    return _LOST_ITSELF.search(said) is not None


def why_no_report(plan: Plan, ended: Ended, told: Sequence[Told]) -> CaptureError:
    """Why a run that was to leave reports left none of them."""
    said = "\n".join(ended.tail)
    if ended.interrupted:
        return ChildFailed(
            f"{_failed(plan, ended)}Nothing had been captured.", ended.exit_code or 1
        )
    if _full(plan.request.folder):
        return CaptureError(_disk_full(plan))
    if _NO_PERMISSION.search(said):
        return CaptureError(_no_permission())
    recorded = sorted(path.name for path in plan.request.folder.glob("*.qdstrm"))
    if recorded:
        return CaptureError(
            f"nsys recorded the run but could not import it: {recorded[0]} in"
            f" {plan.request.folder} is half a report. See what is wrong with this nsys:\n"
            "  nsysflow doctor"
        )
    if _REFUSED in said:
        return CaptureError(
            "nsys refused its options and did not start the program. It said:\n"
            f"{_indented(ended)}\nSee what it was given:\n  nsysflow profile --dry-run …"
        )
    if nsys_broke(said):
        return CaptureError(
            "nsys broke, and not the program: it lost the connection to its own agent, which it"
            f" calls a bug of its own. It said:\n{_indented(ended)}\n"
            f"Run the same once more, over {plan.request.folder}:\n  --force"
        )
    if ended.exit_code:
        why = " ".join(filter(None, ("No report was written.", ended_inside(plan, told))))
        return ChildFailed(f"{_failed(plan, ended)}{why}", ended.exit_code)
    if plan.window is not None:
        return CaptureError(why_unopened(plan, plan.window, told))
    return CaptureError(
        f"nsys ended well and wrote no report. What it said is in {plan.request.folder / LOG};"
        " see whether it works here at all:\n  nsysflow doctor"
    )


def child_failed(plan: Plan, ended: Ended, reports: Sequence[str]) -> ChildFailed:
    """The program's failure, for a run that left reports."""
    kept = ", ".join(reports)
    return ChildFailed(
        f"{_failed(plan, ended)}What was captured until then is kept: {kept}", ended.exit_code
    )


def export_failed(plan: Plan, ended: Ended, why: NsysflowError) -> ChildFailed:
    """The program's failure, for a run whose report cannot be exported either."""
    return ChildFailed(f"{_failed(plan, ended)}And its report: {why}", ended.exit_code)


def _failed(plan: Plan, ended: Ended) -> str:
    what = "was interrupted" if ended.interrupted else "failed"
    command = " ".join(plan.request.command[:3])
    more = " …" if len(plan.request.command) > 3 else ""
    return (
        f"{command}{more} {what} with exit code {ended.exit_code}. Its last lines, of"
        f" {plan.request.folder / LOG}:\n{_indented(ended)}\n"
    )


def _indented(ended: Ended) -> str:
    return "\n".join(f"  {line}" for line in ended.tail) or "  (nothing)"


def _no_permission() -> str:
    return (
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM), so nsys did not"
        " start. Run as root, leave --gpu-metrics out, or allow it for all users:\n"
        "  options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        "    (in /etc/modprobe.d/nvidia.conf; then load the driver again)"
    )


def _full(folder: Path) -> bool:
    places = (folder, Path(tempfile.gettempdir()))
    return any(shutil.disk_usage(place).free < _FULL_BELOW_BYTES for place in places)


def _disk_full(plan: Plan) -> str:
    return (
        f"the disk is full: nsys could not write its report to {plan.request.folder}, or its"
        f" scratch file to {tempfile.gettempdir()}. Make room, choose another disk with -o DIR"
        " and TMPDIR=DIR, or capture less (--capture, fewer --trace)"
    )
