"""Where the GPU's time goes, as a table, also of a narrowed window (spec §2)."""

from collections import defaultdict

from tests.oracle.accounting import (
    Interval,
    Keep,
    common,
    covered,
    is_comm,
    is_copy,
    length,
    parts,
    union,
    window,
)
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.phases import Open
from tests.oracle.report import Report, Row, joined


def accounting(report: Report, keep: Keep | None = None) -> list[Row]:
    """§2.1, §2.5: one row per device; §2.2: `keep` narrows the window of each device."""
    rows = []
    for device in report.devices:
        ops = [report.ops[index] for index in report.on(device)]
        whole_window = report.windows[device]
        kept = whole_window
        if keep is not None:
            kept = common(union(keep.get(device, [])), whole_window)
        gaps = [gap for gap in report.gaps_on(device) if inside_ns(gap, kept)]
        split = parts(ops, kept)
        shares = [share(gap, inside_ns(gap, kept)) for gap in gaps]
        here = ops if keep is None else [op for op in ops if _touches(kept, op.start_ns, op.end_ns)]
        copies = common(covered(op for op in ops if is_copy(op)), kept)
        comms = common(covered(op for op in ops if is_comm(op)), kept)
        rows.append(
            {
                "report": report.trace.report,
                "device": device,
                "name": report.gpu_name(device),
                "start_ns": kept[0][0] if kept else None,
                "end_ns": kept[-1][1] if kept else None,
                **split,
                **{f"{cause}_ns": sum(part[cause] for part in shares) for cause in CAUSES},
                "ops": len(here),
                "kernels": sum(op.kind == "kernel" for op in here),
                "gaps": len(gaps),
                "kernel_ns": sum(op.end_ns - op.start_ns for op in here if op.kind == "kernel"),
                "copy_ns": sum(op.end_ns - op.start_ns for op in here if is_copy(op)),
                "comm_ns": sum(op.end_ns - op.start_ns for op in here if is_comm(op)),
                "copy_hidden_pct": hidden_pct(split["copy_exposed_ns"], length(copies)),
                "comm_hidden_pct": hidden_pct(split["comm_exposed_ns"], length(comms)),
            }
        )
    return rows


def hidden_pct(exposed_ns: int, union_ns: int) -> float | None:
    """§2.5: 100·(1 - exposed / union); null if the union is empty."""
    return 100 * (union_ns - exposed_ns) / union_ns if union_ns else None


def inside_ns(gap: Gap, window: list[Interval]) -> int:
    """How much of a gap lies in a window."""
    return length(common([(gap.start_ns, gap.end_ns)], window))


def _touches(window: list[Interval], start_ns: int, end_ns: int) -> bool:
    return any(start_ns < end and max(end_ns, start_ns + 1) > start for start, end in window)


def share(gap: Gap, inside: int) -> dict[str, int]:
    """§2.3: the causes of a gap in proportion to the part inside a window, by largest remainder."""
    total = gap.duration_ns
    given = {cause: gap.causes[cause] * inside // total for cause in CAUSES}
    rest = inside - sum(given.values())
    remainders = sorted(CAUSES, key=lambda cause: -(gap.causes[cause] * inside % total))
    for cause in remainders[:rest]:
        given[cause] += 1
    return given


def causes_in(gap: Gap, keep: Keep | None) -> dict[str, int]:
    """§2.3: the causes of the part of a gap that is kept."""
    if keep is None:
        return gap.causes
    return share(gap, inside_ns(gap, keep.get(gap.device, [])))


def projections(report: Report, name: str) -> Keep:
    """§2.2: the union of the projections of a range's instances."""
    found: Keep = {}
    for by_instance in report.ops_by_instance.values():
        launched: dict[Open, list[int]] = defaultdict(list)
        for (path, range_), ops in by_instance.items():
            if name in (path[-1], joined(path)):
                launched[range_] += ops
        for ops in launched.values():
            for device in report.devices:
                here = [report.ops[i] for i in ops if report.ops[i].device == device]
                found.setdefault(device, []).extend(window(here))
    return {device: union(intervals) for device, intervals in found.items()}
