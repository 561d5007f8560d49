"""Who was waited for, and what bounds a phase, a step or a view (spec §15)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from tests.oracle.account_table import causes_in
from tests.oracle.accounting import (
    FOREVER,
    Interval,
    Keep,
    common,
    covered,
    is_comm,
    is_compute,
    is_copy,
    length,
    union,
    without,
)
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.once import grouped_by, once
from tests.oracle.producers import Producers
from tests.oracle.report import Report, Row, joined, os_pid


@dataclass(frozen=True)
class Piece:
    """Some time without compute on one device. `op` was waited for, or had not started."""

    device: int
    start_ns: int
    end_ns: int
    kind: str
    op: int | None

    def inside(self, keep: Keep | None) -> list[Interval]:
        """What of it is in a narrowed window."""
        span = [(self.start_ns, self.end_ns)]
        return span if keep is None else common(span, keep.get(self.device, []))


class Waits(Producers):
    """The producers of all operations, and the pieces of the time without compute."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.trace, report.calls)
        self.report = report

    @cached_property
    def pieces(self) -> list[Piece]:
        """§15.1 to §15.4."""
        return [piece for device in self.report.devices for piece in self._on(device)]

    def _on(self, device: int) -> list[Piece]:
        found: list[Piece] = []
        for window in self.report.windows[device]:
            compute = [
                i
                for i in self.report.on(device)
                if is_compute(self.ops[i]) and self.ops[i].end_ns > self.ops[i].start_ns
            ]
            busy = covered(self.ops[i] for i in compute)
            starting = grouped_by(lambda i: self.ops[i].start_ns, compute)
            edges = [window[0], *(edge for span in busy for edge in span), window[1]]
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                if start < end:
                    found += self._stretch(device, start, end, starting[end])
        return self._with_work(device, found)

    def _with_work(self, device: int, pieces: list[Piece]) -> list[Piece]:
        """§15.5a: the pieces of a device, where it mostly communicates and copies its own work.
        §15.4, §15.5b: elsewhere what runs in the last stretch, and before it copies of managed
        memory."""
        lasting = (i for i in self.report.on(device) if self.ops[i].end_ns > self.ops[i].start_ns)
        ops = sorted(lasting, key=lambda index: self.rank[index])
        spans = {index: (self.ops[index].start_ns, self.ops[index].end_ns) for index in ops}
        compute = covered(self.ops[i] for i in ops if is_compute(self.ops[i]))
        others = [i for i in ops if not is_compute(self.ops[i])]
        alone = without(union(spans[i] for i in others), compute)
        often = 2 * len(others) >= len(ops)
        if alone and often and length(alone) >= 4 * length(compute):
            return self._replaced(device, pieces, others, compute)
        after = [(piece.start_ns, piece.end_ns) for piece in pieces if piece.op is None]
        managed = [i for i in others if self.ops[i].name.startswith("memcpy UVM ")]
        pieces = self._replaced(device, pieces, managed, union([*compute, *after]))
        return self._replaced(device, pieces, others, without([FOREVER], after))

    def _replaced(
        self, device: int, pieces: list[Piece], ops: list[int], outside: list[Interval]
    ) -> list[Piece]:
        """The pieces, but the time of `ops` that is not `outside` is that of the first one."""
        work, reached = [], outside
        for index in ops:
            span = (self.ops[index].start_ns, self.ops[index].end_ns)
            for start, end in without(union([span]), reached):
                work.append(Piece(device, start, end, self._kind(index), index))
            reached = union([*reached, span])
        taken = union((piece.start_ns, piece.end_ns) for piece in work)
        rest = [
            replace(piece, start_ns=start, end_ns=end)
            for piece in pieces
            for start, end in without(union([(piece.start_ns, piece.end_ns)]), taken)
        ]
        return [*rest, *work]

    def _stretch(self, device: int, start: int, end: int, ends: list[int]) -> list[Piece]:
        """§15.3: from the compute operation behind a stretch to its beginning."""
        if not ends:
            return [Piece(device, start, end, "unresolved", None)]
        found = []
        op: int | None = min(ends, key=lambda index: self.rank[index])
        while op is not None:
            found += self._hop(device, op, start)
            op = self._behind(op, start)
        return [piece for piece in found if piece.end_ns > piece.start_ns]

    def _behind(self, op: int, start: int) -> int | None:
        source = self.presumed(op)
        if source is None or self.ops[source].device != self.ops[op].device:
            return None
        return source if self.ops[source].start_ns > start else None

    def _hop(self, device: int, op: int, start: int) -> list[Piece]:
        hi, source = self.ops[op].start_ns, self.presumed(op)
        launch, edge, found = self.report.calls.launch[op], start, []
        if source is not None:
            edge = min(max(self.ops[source].end_ns, start), hi)
            if self.ops[source].device != device:
                found.append(Piece(device, start, edge, "other", source))
            else:
                begin = max(start, self.ops[source].start_ns)
                found.append(Piece(device, begin, edge, self._kind(source), source))
        if launch is None:
            return [*found, Piece(device, edge, hi, "unresolved", op)]
        free = min(max(self.report.calls.calls[launch].end_ns, edge), hi)
        limit_ns = self.report.calls.queue_delay_limit_ns(op)
        start_kind = "start" if hi - free <= limit_ns else "unresolved"
        return [
            *found,
            Piece(device, edge, free, "host", op),
            Piece(device, free, hi, start_kind, op),
        ]

    def _kind(self, op: int) -> str:
        if is_comm(self.ops[op]):
            return "communication"
        return "copy" if is_copy(self.ops[op]) else "other"


@once
def waits_of(report: Report) -> Waits:
    """The waits of a report."""
    return Waits(report)


def waited(report: Report, keep: Keep | None = None) -> list[Row]:
    """§15.5: the pieces, summed."""
    groups: dict[tuple[int | None, int, str, str, str, int | None], list[int]] = defaultdict(list)
    for piece in waits_of(report).pieces:
        process, phase, name, stream = None, "", "", None
        if piece.op is not None:
            op = report.ops[piece.op]
            process, phase = op.process, joined(report.op_place(piece.op).path)
            if piece.kind in ("communication", "copy", "other"):
                name, stream = op.short_name, op.stream
        for start, end in piece.inside(keep):
            key = (os_pid(process), piece.device, phase, piece.kind, name, stream)
            groups[key].append(end - start)
    windows = report.windows if keep is None else keep
    return [
        {
            "report": report.trace.report,
            "process": process,
            "device": device,
            "phase": phase,
            "kind": kind,
            "name": name,
            "stream": stream,
            "waits": len(ns),
            "total_ns": sum(ns),
            "largest_ns": max(ns),
            "window_pct": 100 * sum(ns) / length(windows[device]),
        }
        for (process, device, phase, kind, name, stream), ns in groups.items()
    ]


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
    waited_ns = sum(exposed(waits.pieces).values())
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


def exposed(pieces: Iterable[Piece], keep: Keep | None = None) -> dict[str, int]:
    """§15.7: communication and copies that were waited for."""
    found = dict.fromkeys(KINDS, 0)
    for piece in pieces:
        for part, kind in KINDS.items():
            if piece.kind == kind:
                found[part] += length(piece.inside(keep))
    return found


def idle(gaps: Iterable[Gap], keep: Keep | None = None) -> dict[str, int]:
    """The causes of gaps, or of their parts in a narrowed window."""
    shares = [causes_in(gap, keep) for gap in gaps]
    return {cause: sum(share[cause] for share in shares) for cause in CAUSES}
