"""What bounds a phase, a step or a view (spec §15)."""

from collections.abc import Iterable
from dataclasses import replace

from tests.oracle.account_table import causes_in
from tests.oracle.accounting import Interval, Keep, common, covered, is_compute, length
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.once import once
from tests.oracle.report import Report
from tests.oracle.waited import Piece, waits_of

PARTS = ("compute", "communication", "copies", *CAUSES)
KINDS = {"communication": "communication", "copies": "copy"}


def bound(parts: dict[str, int]) -> tuple[str, float | None]:
    """§15.8: names of the largest parts, and the share of the first."""
    total, most = sum(parts.values()), max(parts.values())
    if most == 0 or 100 * most < 10 * total:
        return "", None
    near = [name for name in PARTS if 6 * parts[name] >= 5 * most]
    near.sort(key=lambda name: -parts[name])  # stable: ties in the order of the parts
    return "+".join(near[:3]), 100 * most / total


@once
def unhidden(report: Report) -> Report:
    """§15.7: the report with copies and communication only while they were waited for."""
    waits = waits_of(report)
    since: dict[int, int] = {}
    for piece in waits.pieces:
        if piece.kind in KINDS.values() and piece.op is not None:
            since[piece.op] = min(piece.start_ns, since.get(piece.op, piece.start_ns))
    window_ns = sum(length(spans) for spans in report.windows.values())
    busy_ns = sum(length(spans) for spans in report.busy.values())
    compute_ns = sum(length(compute_of(report, report.on(device))) for device in report.devices)
    waited_ns = sum(waited(waits.pieces).values())
    hiding_ns = busy_ns - compute_ns - waited_ns
    if hiding_ns == 0 or hiding_ns * 100 < window_ns:
        return report
    ops = [
        replace(op, start_ns=max(op.start_ns, since.get(index, op.start_ns)))
        for index, op in enumerate(report.ops)
        if is_compute(op) or index in since
    ]
    trace = replace(report.trace, ops=tuple(ops))
    gap_ns = report.gaps.framework_gap_ns
    return Report(trace, framework_gap_ns=gap_ns, whole=report.calls)


def compute_of(report: Report, ops: Iterable[int]) -> list[Interval]:
    """The time in which compute of these operations of one device runs."""
    return covered(report.ops[index] for index in ops if is_compute(report.ops[index]))


def waited(pieces: Iterable[Piece], keep: Keep | None = None) -> dict[str, int]:
    """§15.7: communication and copies that were waited for."""
    found = dict.fromkeys(KINDS, 0)
    for piece in pieces:
        for part, kind in KINDS.items():
            if piece.kind == kind:
                inside = [(piece.start_ns, piece.end_ns)]
                if keep is not None:
                    inside = common(inside, keep.get(piece.device, []))
                found[part] += length(inside)
    return found


def idle(gaps: Iterable[Gap], keep: Keep | None = None) -> dict[str, int]:
    """The causes of gaps, or of their parts in a narrowed window."""
    shares = [causes_in(gap, keep) for gap in gaps]
    return {cause: sum(share[cause] for share in shares) for cause in CAUSES}
