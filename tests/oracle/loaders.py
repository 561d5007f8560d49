"""What loaders and their workers did (spec §27)."""

from tests.oracle.accounting import common, length, union
from tests.oracle.memory import Span, host_steps, recorded
from tests.oracle.model import LoaderTime
from tests.oracle.once import grouped_by
from tests.oracle.report import Report, Row
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import Step, steps_of

SETTINGS = (
    *("workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers"),
    *("start_method", "cores"),
)


def loader_workers(report: Report, judged: list[Step] | None = None) -> list[Row]:
    """§27.2, §27.3: a row per loader and worker; without `judged` steps of the whole report."""
    told = [time for time in report.trace.loader_times if time.start_ns <= time.end_ns]
    loaders = grouped_by(lambda time: (time.process, time.loader), told)
    rows = []
    for (process, loader), mine in sorted(loaders.items()):
        of_process = [time for time in told if time.process == process]
        first = min(time.start_ns for time in of_process)
        last = max(time.end_ns for time in of_process)
        spans = [
            (max(start, first), min(end, last + 1))
            for start, end in selected(report, process, judged)
            if max(start, first) < min(end, last + 1)
        ]
        if sum(end - start for start, end in spans):
            workers = {time.worker for time in mine if time.worker is not None}
            key = report.about(process, loader=loader)
            rows += [
                {**key, "worker": worker, **row_of(mine, worker, spans)}
                for worker in (None, *sorted(workers))
            ]
    return rows


def selected(report: Report, process: int, judged: list[Step] | None) -> list[Span]:
    """§27.2: the time of the host in the judged steps on the first device with steps; else all."""
    if judged is None:
        ran = any(op.process == process for op in report.ops)
        return recorded(report) if ran else []
    devices = {step.device for step in steps_of(report) if step.process == process}
    if not devices:
        return []
    steps = host_steps(report, min(devices), process)
    return [span for step, span in steps.items() if step in judged]


def row_of(mine: list[LoaderTime], worker: int | None, spans: list[Span]) -> Row:
    """One row."""
    of_loop = [time for time in mine if time.worker is None]
    first = min(mine, key=lambda time: (time.start_ns, time.end_ns))
    hands = max(first.workers or 0, 1) if worker is None else 1
    if worker is not None:
        counted = [time for time in mine if time.worker == worker]
    else:
        counted = [time for time in mine if (time.worker is None) == (not first.workers)]
    groups = grouped_by(lambda time: time.worker, counted)
    span = sum(end - start for start, end in spans)
    busy = sum(covered(group, spans) for group in groups.values())
    ended = [time for group in groups.values() for time in group if counts(time, spans)]
    fetches = [
        (time.end_ns if time.fetched_ns is None else time.fetched_ns) - time.start_ns
        for time in ended
    ]
    return {
        "span_ns": span,
        "batches": len(ended),
        "busy_ns": busy,
        "busy_pct": 100 * busy / (hands * span),
        "waiting_ns": hands * span - busy,
        "fetch_median_ns": whole(percentile(fetches, 50)),
        "fetch_p95_ns": whole(percentile(fetches, 95)),
        "batches_per_s": len(ended) / span * 1e9,
        "steps": sum(counts(time, spans) for time in of_loop) if worker is None else None,
        "waited_ns": covered(of_loop, spans) if worker is None else None,
        **{name: getattr(first, name) for name in SETTINGS},
    }


def counts(time: LoaderTime, spans: list[Span]) -> bool:
    """Whether it ends in the selected time."""
    return any(start <= time.end_ns < end for start, end in spans)


def covered(times: list[LoaderTime], spans: list[Span]) -> int:
    """How much of the selected time they cover, overlaps once."""
    busy = union((time.start_ns, time.end_ns) for time in times)
    return sum(length(common(busy, [span])) for span in spans)
