"""Sampled counters per phase and class (spec §10)."""

import re
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from nsysflow.analysis.events.kernel_classes import OTHER, kernel_classes
from tests.oracle.accounting import Interval, Keep, common, communication, covered, length, window
from tests.oracle.model import GpuSample, Op
from tests.oracle.phases import Open
from tests.oracle.report import Path, Report, Row, joined
from tests.oracle.stats import percentile, whole

METRICS = ("sm_active_pct", "sm_issue_pct", "tensor_active_pct", "dram_read_pct", "dram_write_pct")


@dataclass(frozen=True)
class Slot:
    """§10.3, §10.4: the time of a sample, and its rates, in thousandths of a percent."""

    interval: Interval
    rates: dict[str, int]


def slots_of(report: Report, device: int) -> list[Slot]:
    """§10.3: a sample covers the time to the next one, at most the median distance."""
    samples = sorted(
        (s for s in report.trace.gpu_samples if s.device == device), key=lambda s: s.time_ns
    )
    following = samples[1:]
    distances = [after.time_ns - s.time_ns for s, after in zip(samples, following, strict=False)]
    period = whole(percentile(distances, 50))
    if period is None:
        return []
    slots = []
    for index, sample in enumerate(samples):
        end = sample.time_ns + period
        if index < len(following):
            end = min(end, following[index].time_ns)
        interval = (sample.time_ns, end)
        if end > sample.time_ns:
            busy_ns = length(common(report.busy[device], [interval]))
            if busy_ns > 0:
                slots.append(Slot(interval, rates(sample, end - sample.time_ns, busy_ns)))
    return slots


def rates(sample: GpuSample, length_ns: int, busy_ns: int) -> dict[str, int]:
    """§10.4: value · length ÷ busy, at most 100 %, for each counter that the GPU has."""
    values = {name: getattr(sample, name) for name in METRICS}
    return {
        name: max(0, min(100_000, value * 1_000 * length_ns // busy_ns))
        for name, value in values.items()
        if value is not None
    }


def class_of(op: Op) -> str:
    """§6.3: communication (§2.4), else the class of the short name; the first match wins. A name
    in no class that holds the word GemmKernel is a product's."""
    if (kind := communication(op)) is not None:
        return kind
    for name, pattern in kernel_classes():
        if re.search(pattern, op.short_name):
            return name
    return "matmul" if re.search(r"\bGemmKernel\b", op.name) else OTHER


def gpu_metrics(report: Report, keep: Keep | None = None) -> list[Row]:
    """§10.1: mean counters per phase and kernel class; §10.8: of a narrowed window."""
    if not report.trace.gpu_samples:
        return []
    rows = []
    for device in report.devices:
        kept = report.windows[device] if keep is None else keep.get(device, [])
        slots = slots_of(report, device)
        for (group, path), ops in members_of(report, device).items():
            running = common(covered(report.ops[i] for i in ops), kept)
            if not running:
                continue
            row = measured(running, slots)
            idle = idle_share(report, device, path, kept) if group == "phase" else None
            rows.append(
                {
                    "report": report.trace.report,
                    "device": device,
                    "group": group,
                    "name": joined(path),
                    **row,
                    "bound": bound(row, idle),
                }
            )
    return rows


def members_of(report: Report, device: int) -> dict[tuple[str, Path], set[int]]:
    """§10.1: the operations on a device by phase (inclusive), and its kernels by class."""
    members: dict[tuple[str, Path], set[int]] = defaultdict(set)
    on_device = set(report.on(device))
    for by_instance in report.ops_by_instance.values():
        for (path, _), ops in by_instance.items():
            members["phase", path] |= on_device.intersection(ops)
    for index in on_device:
        if report.ops[index].kind == "kernel":
            members["class", (class_of(report.ops[index]),)].add(index)
    return members


def measured(running: list[Interval], slots: list[Slot]) -> Row:
    """§10.5: how long the operations run, the number of samples that share this time, the means."""
    shares = [(slot, length(common(running, [slot.interval]))) for slot in slots]
    shares = [(slot, ns) for slot, ns in shares if ns > 0]
    row: Row = {"busy_ns": length(running), "samples": len(shares)}
    for name in METRICS:
        known = [(slot.rates[name], ns) for slot, ns in shares if name in slot.rates]
        weight = sum(ns for _, ns in known)
        row[name] = sum(rate * ns for rate, ns in known) / (1_000 * weight) if known else None
    return row


def idle_share(report: Report, device: int, path: Path, kept: list[Interval]) -> Fraction:
    """§10.6: the share of a phase's spans inside the window in which the GPU runs nothing."""
    spans: dict[Open, list[Op]] = defaultdict(list)
    for by_instance in report.ops_by_instance.values():
        for (found, range_), ops in by_instance.items():
            if found == path:
                spans[range_] += [report.ops[i] for i in ops if report.ops[i].device == device]
    whole_ns = busy_ns = 0
    for of_instance in spans.values():
        span = common(window(of_instance), kept)
        whole_ns += length(span)
        busy_ns += length(common(report.busy[device], span))
    return Fraction(whole_ns - busy_ns, whole_ns)


def bound(row: Row, idle: Fraction | None) -> str | None:
    """§10.6: compute, memory, overhead or latency; None if nothing was sampled or none applies."""
    compute = [row[name] for name in ("tensor_active_pct", "sm_issue_pct") if row[name] is not None]
    memory = [row[name] for name in ("dram_read_pct", "dram_write_pct") if row[name] is not None]
    if row["samples"] == 0:
        return None
    if compute and max(compute) >= 60:
        return "compute"
    if memory and sum(memory) >= 60:
        return "memory"
    if idle is not None and idle >= Fraction(30, 100):
        return "overhead"
    return "latency" if compute and memory else None
