"""What a run's manifest and its report say together: silence turned into words.

A profiler that cannot record something mostly says nothing. What was asked for, or known to have
happened, and is not in the report, is a note on the page.
"""

from collections.abc import Callable, Mapping
from typing import Final

from nsysflow.analysis.trace import Trace
from nsysflow.handshake import Window
from nsysflow.manifest import Manifest
from nsysflow.nsys import LAST_NVTX, records_nvtx

_EXPECTED: Final[Mapping[str, Callable[[Manifest], bool]]] = {
    "no GPU work": lambda manifest: manifest.on == "cuda",
    "no NVTX ranges": lambda manifest: "nvtx" not in manifest.trace,
}
"""How notes of the loader begin, and whether they are news of a run."""


def notes_on_run(manifest: Manifest, trace: Trace) -> tuple[str, ...]:
    """The report's own notes, and sentences on what was asked for and is missing, each with what
    to do. What a run was not to record is not missed."""
    unasked = [what for what, wanted in _EXPECTED.items() if not wanted(manifest)]
    kept = [note for note in trace.notes if not note.startswith(tuple(unasked))]
    found = [*kept, _lost_ranges(manifest, trace), _lost_ranks(manifest), _ended_early(manifest)]
    if "nvtx" in manifest.trace and trace.ranges.is_empty() and not _opened(manifest):
        found.append(_no_ranges(manifest))
    if manifest.on == "cpu":
        found.append("this run was made with --on cpu: only ranges could be recorded, no GPU work")
    if manifest.backtrace and trace.backtraces.is_empty():
        found.append(
            "--backtrace was asked for, but the report holds no Python lines: nsys needs CPU"
            " sampling for them (nsysflow doctor says whether it may sample here)"
        )
    if manifest.gpu_metrics and trace.gpu_samples.is_empty():
        found.append(
            "--gpu-metrics was asked for, but the report holds none: this user may not read the"
            " GPU's counters, or another tool holds them (nsysflow doctor)"
        )
    return tuple(note for note in found if note)


def _no_ranges(manifest: Manifest) -> str:
    none = "no NVTX ranges in this report"
    if any(told.steps and "nvtx" not in told.versions for told in manifest.told):
        return (
            f"{none}: the program's Python has no nvtx, which marks what nsysflow.steps and"
            " nsysflow.region name. Install it there: pip install nvtx"
        )
    return (
        f"{none}: the program opened none, so idle time has no phases. nsysflow.region and"
        " nsysflow.steps mark them, with nvtx in the program's Python"
    )


def _lost_ranges(manifest: Manifest, trace: Trace) -> str:
    opened = _opened(manifest)
    if not opened or "nvtx" not in manifest.trace or not trace.ranges.is_empty():
        return ""
    nvtx = next((told.versions["nvtx"] for told in manifest.told if "nvtx" in told.versions), "")
    if _killed_in_window(manifest):
        return ""  # nsys loses what it had not taken by then, whatever it understands
    lost = f"the program opened {opened} NVTX ranges and none was recorded"
    nsys = manifest.versions.get("nsys", "")
    if records_nvtx(nvtx, nsys=nsys):
        return f"{lost}: nsys follows no process that is forked without an exec"
    return (
        f"{lost}: nvtx {nvtx} may be newer than nsys {nsys} understands. Take a newer nsys, or:"
        f" pip install 'nvtx<={'.'.join(map(str, LAST_NVTX))}'"
    )


def _opened(manifest: Manifest) -> int:
    """How many ranges the program says that it opened."""
    return sum(told.ranges for told in manifest.told)


def _lost_ranks(manifest: Manifest) -> str:
    left, started = len(manifest.reports), manifest.processes or 1
    if left >= started:
        return ""
    return f"{left} of {started} ranks left a report: what the others did is in output.log only"


def _ended_early(manifest: Manifest) -> str:
    held, asked = _steps_begun(manifest)
    of = f"{held} of {asked} steps"
    if manifest.interrupted:
        until = f", {of}" if asked else ""
        return f"the run was interrupted: the report holds what was captured until then{until}"
    if manifest.exit_code:
        after = f", {of} captured" if asked else ""
        return (
            f"the program failed (exit code {manifest.exit_code}{after}): its end is no normal one"
        )
    if _killed_in_window(manifest):
        return (
            "the program ended inside the window of --capture by os._exit or a signal: what the"
            " profiler had not written by then is lost"
        )
    why = "the loop ended early" if held < asked else "the program ended in the last one"
    return f"captured {of}: {why}" if asked else ""


def _killed_in_window(manifest: Manifest) -> bool:
    return any(told.window == "open" and not told.at_end for told in manifest.told)


def _steps_begun(manifest: Manifest) -> tuple[int, int]:
    """How many steps began in the window of the process that ended earliest inside its own, and how
    many were asked for; zeros where no window was, or all were closed."""
    inside = [told.captured for told in manifest.told if told.at_end and told.window == "open"]
    if not inside or not manifest.capture:
        return 0, 0
    return min(inside), Window.parse(manifest.capture).active
