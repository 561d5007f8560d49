"""Sync stalls and copies (spec §4)."""

from bisect import bisect_left
from collections import defaultdict

from tests.oracle.accounting import Interval, common, covered, is_copy, length, union
from tests.oracle.calls import STALLS
from tests.oracle.report import Report, Row, joined, os_pid, os_tid

SYNC_SOON_NS = 50_000


def syncs(report: Report) -> list[Row]:
    """§4.1, §4.2: one row per sync, blocking_copy or alloc call."""
    busy = {process: busy_gpus(report, process) for process in report.processes}
    rows: list[Row] = []
    for index, call in enumerate(report.calls.calls):
        kind = report.calls.classes[index]
        if kind not in STALLS or is_inner(report, index):
            continue
        copies = [i for i in report.calls.launched.get(index, ()) if report.ops[i].copy is not None]
        copies.sort(key=lambda i: (report.ops[i].start_ns, report.ops[i].end_ns))
        moved = [copy for i in copies if (copy := report.ops[i].copy) is not None]
        interval = [(call.start_ns, call.end_ns)] if call.end_ns > call.start_ns else []
        rows.append(
            {
                "report": report.trace.report,
                "process": os_pid(call.process),
                "api": call.name,
                "kind": kind,
                "thread": os_tid(call.thread),
                "start_ns": call.start_ns,
                "blocked_ns": call.end_ns - call.start_ns,
                "gpu_busy_ns": length(common(busy[call.process], interval)),
                "induced_idle_ns": report.induced[index],
                "phase": joined(report.place(index).path),
                "source": report.sources.of(index)[0],
                "via": report.sources.of(index)[1],
                "bytes": sum(copy.bytes for copy in moved) if moved else None,
                "direction": moved[0].direction if moved else None,
                "copy_label": copy_label(report, copies[0]) if copies else None,
            }
        )
    return rows


def is_inner(report: Report, index: int) -> bool:
    """§1.8: whether a call is the uncharged driver's part of a runtime call that is a stall too."""
    call = report.calls.calls[index]
    if not call.correlation or report.induced[index]:
        return False
    same = report.calls.named[call.process, call.correlation]
    return any(other < index and report.calls.classes[other] in STALLS for other in same)


def busy_gpus(report: Report, process: int) -> list[Interval]:
    """§4.1: when any of the process's GPUs was busy, with work of any process."""
    gpus = {op.device for op in report.ops if op.process == process}
    return union(interval for device in gpus for interval in report.busy[device])


def copy_label(report: Report, op: int) -> str | None:
    """§4.4, §4.5: `device`, or the memory of the host and how; None if that is not known."""
    copy = report.ops[op].copy
    if copy is None:
        return None
    memories = (copy.source_memory, copy.target_memory)
    if memories == ("device", "device"):
        return "device"
    launch = report.calls.launch[op]
    host = next((memory for memory in ("pageable", "pinned") if memory in memories), None)
    if launch is None or host is None:
        return None
    return f"{host}_{'blocking' if is_blocking(report, op, launch) else 'async'}"


def is_blocking(report: Report, op: int, launch: int) -> bool:
    """§4.5: whether the copy's call ends no earlier than the copy, or a sync follows at once."""
    call = report.calls.calls[launch]
    if call.end_ns >= report.ops[op].end_ns:
        return True
    timeline = report.gaps.timelines[call.thread]
    after = timeline.indices[bisect_left(timeline.starts, call.end_ns) :]  # in order
    others = (index for index in after if index != launch)
    following = next((index for index in others if report.calls.classes[index] != "api"), None)
    if following is None:
        return False
    soon = report.calls.calls[following].start_ns - call.end_ns <= SYNC_SOON_NS
    return report.calls.classes[following] == "sync" and soon


def copies(report: Report) -> list[Row]:
    """§4.4, §4.5: one row per kind of copy and phase. No kernel or graph overlaps `exposed_ns`."""
    groups: dict[tuple[int, int, str, str, str], list[int]] = defaultdict(list)
    for index, op in enumerate(report.ops):
        if op.copy is not None:
            phase = joined(report.op_place(index).path)
            label = copy_label(report, index) or ""
            process = os_pid(op.process) or 0
            groups[process, op.device, phase, op.copy.direction, label].append(index)
    rows = []
    for (process, device, phase, direction, label), found in sorted(groups.items()):
        ops = [report.ops[index] for index in found]
        launches = {launch for i in found if (launch := report.calls.launch[i]) is not None}
        calls = [report.calls.calls[index] for index in launches]
        others = covered(o for o in report.ops if o.device == device and not is_copy(o))
        alone = covered(ops)
        rows.append(
            {
                "report": report.trace.report,
                "process": process,
                "device": device,
                "phase": phase,
                "direction": direction,
                "copy_label": label or None,
                "count": len(ops),
                "bytes": sum(op.copy.bytes for op in ops if op.copy is not None),
                "gpu_ns": sum(op.end_ns - op.start_ns for op in ops),
                "api_ns": sum(call.end_ns - call.start_ns for call in calls),
                "exposed_ns": length(alone) - length(common(alone, others)),
                "induced_idle_ns": sum(report.induced[index] for index in launches),
            }
        )
    return rows
