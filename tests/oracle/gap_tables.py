"""Gaps as tables (spec §3)."""

from collections import defaultdict
from fractions import Fraction

from tests.oracle.accounting import length
from tests.oracle.cpu import descheduled
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.gil import lock_waits
from tests.oracle.idle_places import NOT_RECORDED, Spot, culprit_at, main_place, name_of, places_in
from tests.oracle.once import once
from tests.oracle.report import Report, Row, joined
from tests.oracle.sources import Lines
from tests.oracle.stats import mean, whole
from tests.oracle.steps import Step, kinds_of, steps_of
from tests.oracle.waited import waits_of

Group = tuple[int, str, str, str, str | None, str | None]
"""Device, phase, cause, culprit, source, via."""

LENGTHS = (
    (2_000, "< 2 us"),
    (5_000, "< 5 us"),
    (20_000, "< 20 us"),
    (100_000, "< 100 us"),
    (1_000_000, "< 1 ms"),
    (10_000_000, "< 10 ms"),
    (100_000_000, "< 100 ms"),
)


def step_of(report: Report, gap: Gap, steps: list[Step]) -> int | None:
    """§8.2: the step that contains the gap's start, of the process whose operation ends the gap."""
    process = report.ops[gap.next_op].process
    for step in steps:
        if (step.process, step.device) == (process, gap.device) and step.holds(gap.start_ns):
            return step.index
    return None


def waiting_phase(report: Report, gap: Gap) -> str:
    """§3.14: the path of `n`."""
    launch = report.calls.launch[gap.next_op]
    return NOT_RECORDED if launch is None else joined(report.op_place(gap.next_op).path)


def culprit_of(report: Report, gap: Gap, cause: str) -> str:
    """§3.15."""
    if cause != "dependency":
        return report.gaps.culprit(gap, cause)
    awaited = waits_of(report).by_event(gap.next_op)
    if awaited is None:
        return ""
    return f"{report.ops[awaited].short_name} on stream {report.ops[awaited].stream}"


def blamed(report: Report, gap: Gap, cause: str, spot: Spot) -> tuple[str, Lines]:
    """§3.15, §3.23, §11.6: the culprit of a cause at a place, and its lines."""
    call = None if cause == "profiler" else culprit_at(report, gap, cause, spot)
    culprit = "" if call is None else report.calls.calls[call].name
    if cause in ("profiler", "dependency"):
        culprit = culprit_of(report, gap, cause)
    launch = report.calls.launch[gap.next_op]
    return culprit, report.sources.of(launch if call is None else call)


@once
def gaps(report: Report) -> list[Row]:
    """§3.13 to §3.21: one row per gap."""
    steps, waits = steps_of(report), lock_waits(report)
    rows = []
    for device in report.devices:
        for number, gap in enumerate(report.gaps_on(device)):
            rows.append(
                {
                    "report": report.trace.report,
                    "device": device,
                    "gap": number,
                    "step": step_of(report, gap, steps),
                    "start_ns": gap.start_ns,
                    "end_ns": gap.end_ns,
                    "duration_ns": gap.duration_ns,
                    "cause": gap.cause,
                    "culprit": culprit_of(report, gap, gap.cause),
                    "source": report.source(gap, gap.cause)[0],
                    "via": report.source(gap, gap.cause)[1],
                    "phase": name_of(main_place(report, gap)),
                    "waiting_phase": waiting_phase(report, gap),
                    "host_range": joined(gap.host_place.path),
                    "prev_op": report.ops[gap.prev_op].short_name,
                    "next_op": report.ops[gap.next_op].short_name,
                    **{f"{cause}_ns": gap.causes[cause] for cause in CAUSES},
                    "descheduled_ns": descheduled(report, gap),
                    "gil_ns": waits.of_gap(gap),
                }
            )
    return rows


def gap_summary(report: Report) -> list[Row]:
    """§3.13 to §3.23: parts of gaps, grouped. A gap with three causes counts in three rows."""
    groups: dict[Group, list[int]] = defaultdict(list)
    in_steps: dict[Group, int] = defaultdict(int)
    in_steady: dict[Group, int] = defaultdict(int)
    launchers: dict[Group, set[int | None]] = defaultdict(set)
    steps = steps_of(report)
    steady = [found for found, kind in kinds_of(report).items() if kind.name == "steady"]
    for gap in report.gaps.gaps:
        inside = step_of(report, gap, steps) is not None
        inside_steady = step_of(report, gap, steady) is not None
        for cause in gap.causes:
            for spot, part_ns in places_in(report, gap, cause).items():
                culprit, lines = blamed(report, gap, cause, spot)
                key = (gap.device, name_of(spot), cause, culprit, *lines)
                groups[key].append(part_ns)
                in_steps[key] += part_ns if inside else 0
                in_steady[key] += part_ns if inside_steady else 0
                launchers[key].add(report.ops[gap.next_op].process)
    rows: list[Row] = []
    for key, ns in groups.items():
        device, phase, cause, culprit, source, via = key
        rows.append(
            {
                "report": report.trace.report,
                "device": device,
                "phase": phase,
                "cause": cause,
                "culprit": culprit,
                "source": source,
                "via": via,
                "gaps": len(ns),
                "total_ns": sum(ns),
                "mean_ns": whole(mean(ns)),
                "max_ns": max(ns),
                "per_step_ns": per_step(in_steps[key], steps, device, launchers[key]),
                "steady_per_step_ns": per_step(in_steady[key], steady, device, launchers[key]),
                "window_pct": 100 * sum(ns) / length(report.windows[device]),
            }
        )
    return rows


def per_step(ns: int, steps: list[Step], device: int, launchers: set[int | None]) -> int | None:
    """§8.19: per step of these processes on the device; None where they have none."""
    count = sum(step.process in launchers and step.device == device for step in steps)
    return whole(Fraction(ns, count)) if count else None


def gap_histogram(report: Report) -> list[Row]:
    """§3: the histogram of gaps by length, per cause (the largest)."""
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for gap in report.gaps.gaps:
        bin_ = sum(gap.duration_ns >= limit for limit, _ in LENGTHS)
        groups[gap.device, bin_, CAUSES.index(gap.cause)].append(gap.duration_ns)
    labels = [label for _, label in LENGTHS] + ["longer"]
    return [
        {
            "report": report.trace.report,
            "device": device,
            "length": labels[bin_],
            "cause": CAUSES[cause],
            "gaps": len(ns),
            "idle_ns": sum(ns),
        }
        for (device, bin_, cause), ns in sorted(groups.items())
    ]
