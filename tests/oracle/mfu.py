"""Model FLOPs utilization (spec §8.7 to §8.11): declared FLOPs over measured time and peak."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nsysflow.base.peaks import peak_flops
from tests.oracle.accounting import Keep
from tests.oracle.loops import automatic_steps, step_paths
from tests.oracle.model import Flops
from tests.oracle.phase_table import begins, phases_in
from tests.oracle.report import Path, Report, Row, joined, os_pid
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import Step, steps, steps_of

Spans = dict[Path, tuple[int, list[int]]]
"""Per path, how many instances it has, and the spans of those that launched anything."""


def mfu(report: Report, keep: Keep | None = None) -> list[Row]:
    """§8.8 to §8.10: a row per process and device for its step, and one per phase with FLOPs."""
    rows: list[Row] = []
    table = steps(report)
    for process in sorted({flops.process for flops in report.trace.flops}):
        given = [flops for flops in report.trace.flops if flops.process == process]
        unit, total = given[0].unit, sum(flops.flops for flops in given)
        mine = [s for s in steps_of(report) if s.process == process and begins(s, keep)]
        begun = {(os_pid(step.process), step.device, step.index) for step in mine}
        paths = step_paths(report, process, None)
        automatic = bool(automatic_steps(report, process, None))
        if automatic:
            paths = [("step",)]
        if len(paths) != 1:
            continue
        (step_of,) = paths
        devices = sorted({step.device for step in mine})
        for device in devices:
            here = {each for each in begun if each[1] == device}
            own = [r for r in table if (r["process"], r["device"], r["step"]) in here]
            timed = [row for row in own if row["steady"]] or own
            time_ns = whole(percentile([row["duration_ns"] for row in timed], 50))
            about = report.about(process, device=device)
            of_step = rate(report.gpu_name(device), unit, total, len(timed), time_ns)
            rows.append({**about, "path": joined(step_of), **of_step})
            if len(devices) == 1 and not automatic:
                spans = (
                    all_spans(report, process) if keep is None else spans_in(report, mine, step_of)
                )
                for path, of_phase in of_phases(given, report.gpu_name(device), step_of, spans):
                    rows.append({**about, "path": joined(path), **of_phase})
    return rows


def all_spans(report: Report, process: int) -> Spans:
    """§8.9: the spans of the whole report."""
    found = phases_in(report, process).items()
    return {path: (len(phase.instances), phase.spans) for path, phase in found}


def spans_in(report: Report, steps: list[Step], step_of: Path) -> Spans:
    """§8.10: the spans of what these steps launched on their device."""
    found: dict[Path, list[int]] = defaultdict(list)
    for step in steps:
        by_instance = report.ops_by_instance[step.process]
        launched = set(by_instance[step_of, step.range_])
        for (path, _), ops in by_instance.items():
            here = [report.ops[i] for i in launched.intersection(ops)]
            here = [op for op in here if op.device == step.device]
            if here:
                span = max(op.end_ns for op in here) - min(op.start_ns for op in here)
                found[path].append(span)
    return {path: (len(spans), spans) for path, spans in found.items()}


def of_phases(
    given: list[Flops], gpu: str | None, step_of: Path, phases: Spans
) -> Iterator[tuple[Path, Row]]:
    """§8.9: the phases inside a step, with what is declared in them and nested in them."""
    inside = [path for path in phases if len(path) > len(step_of) and starts(path, step_of)]
    where = Counter(flops.phase for flops in given for path in inside if path[-1] == flops.phase)
    declared: dict[Path, int] = defaultdict(int)
    for flops in given:
        for path in inside:
            if path[-1] == flops.phase and where[flops.phase] == 1:
                for upper in inside:
                    if starts(path, upper):
                        declared[upper] += flops.flops
    steps_taken, _ = phases[step_of]
    for path, total in declared.items():
        instances, spans = phases[path]
        median = whole(percentile(spans, 50))
        if median is not None:
            time_ns = round(median * instances / steps_taken)
            yield path, rate(gpu, given[0].unit, total, steps_taken, time_ns)


def starts(path: Path, upper: Path) -> bool:
    """Whether `path` is `upper` or inside it."""
    return path[: len(upper)] == upper


def rate(gpu: str | None, unit: str, flops: int, steps_taken: int, time_ns: int | None) -> Row:
    """§8.11: what a row says of these FLOPs in each of so many steps."""
    per_s = flops * 1e9 / time_ns if time_ns else None
    peak = peak_flops(gpu or "", unit)  # type: ignore[arg-type]
    return {
        "unit": unit,
        "flops": flops,
        "steps": steps_taken,
        "time_ns": time_ns,
        "flops_per_s": per_s,
        "peak_flops_per_s": peak,
        "mfu_pct": None if per_s is None or peak is None else 100 * per_s / peak,
    }
