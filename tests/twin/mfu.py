"""What steps and phases compute of what the GPU could: FLOPs as declared over measured time."""

from collections import Counter, defaultdict

from nsysflow.peaks import peak_flops
from tests.twin.phase_table import phases_of
from tests.twin.report import Path, Report, Row, joined, os_pid
from tests.twin.stats import percentile, whole
from tests.twin.steps import step_paths, steps, steps_of


def mfu(report: Report) -> list[Row]:
    """A row per process and device for its step, and for each phase in which FLOPs are declared."""
    rows: list[Row] = []
    names = {device.device: device.name for device in reversed(report.trace.devices)}
    table = steps(report)
    for process in sorted({flops.process for flops in report.trace.flops}):
        told = [flops for flops in report.trace.flops if flops.process == process]
        unit, total = told[0].unit, sum(flops.flops for flops in told)
        mine = [step for step in steps_of(report) if step.process == process]
        paths = step_paths(report, process, None)
        if len(paths) != 1:
            continue
        (step_of,) = paths
        devices = sorted({step.device for step in mine})
        for device in devices:
            own = [r for r in table if (r["process"], r["device"]) == (os_pid(process), device)]
            looked_at = [row for row in own if row["steady"]] or own
            time_ns = whole(percentile([row["duration_ns"] for row in looked_at], 50))
            rows.append(
                rate(report, process, device, names, step_of, unit, total, len(looked_at), time_ns)
            )
        if len(devices) == 1:
            rows += of_phases(report, process, devices[0], names, step_of)
    return rows


def of_phases(
    report: Report, process: int, device: int, names: dict[int, str | None], step_of: Path
) -> list[Row]:
    """The phases inside a step: what is declared in them and in what they hold."""
    phases = {path: phase for (of, path), phase in phases_of(report).items() if of == process}
    inside = [path for path in phases if len(path) > len(step_of) and starts(path, step_of)]
    told = [flops for flops in report.trace.flops if flops.process == process]
    where = Counter(flops.phase for flops in told for path in inside if path[-1] == flops.phase)
    declared: dict[Path, int] = defaultdict(int)
    for flops in told:
        for path in inside:
            if path[-1] == flops.phase and where[flops.phase] == 1:
                for upper in inside:
                    if starts(path, upper):
                        declared[upper] += flops.flops
    steps_taken = len(phases[step_of].instances)
    rows = []
    for path, total in declared.items():
        median = whole(percentile(phases[path].spans, 50))
        if median is None:
            continue
        time_ns = round(median * len(phases[path].instances) / steps_taken)
        rows.append(
            rate(report, process, device, names, path, told[0].unit, total, steps_taken, time_ns)
        )
    return rows


def starts(path: Path, upper: Path) -> bool:
    """Whether `path` is `upper` or inside it."""
    return path[: len(upper)] == upper


def rate(
    report: Report,
    process: int,
    device: int,
    names: dict[int, str | None],
    path: Path,
    unit: str,
    flops: int,
    steps_taken: int,
    time_ns: int | None,
) -> Row:
    per_s = flops * 1e9 / time_ns if time_ns else None
    peak = peak_flops(names.get(device) or "", unit)  # type: ignore[arg-type]
    return {
        "report": report.trace.report,
        "process": os_pid(process),
        "device": device,
        "path": joined(path),
        "unit": unit,
        "flops": flops,
        "steps": steps_taken,
        "time_ns": time_ns,
        "flops_per_s": per_s,
        "peak_flops_per_s": peak,
        "mfu_pct": None if per_s is None or peak is None else 100 * per_s / peak,
    }
