"""What a run's manifest and its report say together: silence turned into words.

A profiler that cannot record something mostly says nothing. What was asked for, or known to have
happened, and is not in the report, is a note on the page.
"""

from typing import Final

from nsysflow.analysis.trace import Trace
from nsysflow.manifest import Manifest

NVTX_BORDER: Final = "0.2.12"
"""The first nvtx whose ranges nsys 2023.4 silently leaves out; nsys 2025.3 records them."""


def notes_on_run(manifest: Manifest, trace: Trace) -> tuple[str, ...]:
    """Sentences on what was asked for and is missing, each with what to do."""
    found = [_lost_ranges(manifest, trace), _lost_ranks(manifest), _ended_early(manifest)]
    if manifest.on == "cpu":
        found.append("this run was made with --on cpu: NVTX ranges were recorded, no GPU work")
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


def _lost_ranges(manifest: Manifest, trace: Trace) -> str:
    opened = sum(told.ranges for told in manifest.told)
    if not opened or "nvtx" not in manifest.trace or not trace.ranges.is_empty():
        return ""
    nvtx = next((told.versions["nvtx"] for told in manifest.told if "nvtx" in told.versions), "")
    nsys = manifest.versions.get("nsys", "")
    return (
        f"the program opened {opened} NVTX ranges and none was recorded: nvtx {nvtx} may be newer"
        f" than nsys {nsys} understands. Take a newer nsys, or: pip install 'nvtx<{NVTX_BORDER}'"
    )


def _lost_ranks(manifest: Manifest) -> str:
    left, started = len(manifest.reports), manifest.processes or 1
    if left >= started:
        return ""
    return f"{left} of {started} ranks left a report: what the others did is in output.log only"


def _ended_early(manifest: Manifest) -> str:
    if manifest.interrupted:
        return "the run was interrupted: the report holds what was captured until then"
    if manifest.exit_code:
        return f"the program failed (exit code {manifest.exit_code}): its end is not a normal one"
    inside = [told for told in manifest.told if told.window == "open"]
    if inside:
        return "the program ended inside the capture window: it holds fewer steps than asked for"
    return ""
