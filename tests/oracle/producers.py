"""Whom operations waited for on the GPU (spec §15.2)."""

import re
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property

from tests.oracle.calls import Calls
from tests.oracle.model import EventRecord, EventWait, PlainTrace

STREAM_WAIT = re.compile(r"(cuda|cu|hip)StreamWaitEvent")
EVENT_RECORD = re.compile(r"(cuda|cu|hip)EventRecord.*")
OVERLAP_NS = 2_000
START_NS = 10_000

Stream = tuple[int | None, int, int | None]


class Producers:
    """The producers of all operations."""

    def __init__(self, trace: PlainTrace, calls: Calls) -> None:
        self.trace = trace
        self.calls = calls
        self.ops = calls.ops

    def begun(self, op: int) -> int | None:
        """When the launch of an operation began."""
        call = self.calls.caller(op)
        return None if call is None else call.start_ns

    @cached_property
    def rank(self) -> dict[int, int]:
        """§3.1: the order of operations, those of one device after the other's."""

        def key(index: int) -> tuple[object, ...]:
            return self.ops[index].device, self.ops[index].start_ns, *self.calls.order(index)

        order = sorted(range(len(self.ops)), key=key)
        return {index: place for place, index in enumerate(order)}

    @cached_property
    def launched(self) -> dict[Stream, list[tuple[int, int, int, int]]]:
        """The launched operations of each stream: start of the launch, end, rank, index."""
        found = defaultdict(list)
        for index, op in enumerate(self.ops):
            if (begun := self.begun(index)) is not None:
                row = (begun, op.end_ns, self.rank[index], index)
                found[op.process, op.device, op.stream].append(row)
        return {stream: sorted(rows) for stream, rows in found.items()}

    def _call(self, row: EventRecord | EventWait) -> tuple[str, int] | None:
        """Name and start of the outermost call with the correlation id."""
        if row.correlation is None:
            return None
        found = self.calls.named.get((row.process, row.correlation), [])
        calls = [self.calls.calls[index] for index in found]
        return (calls[0].name, calls[0].start_ns) if calls else None

    @cached_property
    def awaited(self) -> dict[int, list[int]]:
        """§15.2: the operations that streams were told to wait for, per first operation after."""
        sources: dict[tuple[int, int | None], int] = {}
        for record in self.trace.event_records:
            call = self._call(record)
            if call is None or not EVENT_RECORD.fullmatch(call[0]):
                continue
            rows = self.launched.get((record.process, record.device, record.stream), [])
            before = [row for row in rows if row[0] <= call[1]]
            if before and record.record is not None:
                sources[record.process, record.record] = before[-1][-1]
        found = defaultdict(list)
        for wait in self.trace.waits:
            call = self._call(wait)
            source = sources.get((wait.process, wait.record))
            if call is None or source is None or not STREAM_WAIT.fullmatch(call[0]):
                continue
            rows = self.launched.get((wait.process, wait.device, wait.stream), [])
            after = [row for row in rows if row[0] >= call[1]]
            if after:
                found[after[0][-1]].append(source)
        return found

    @cached_property
    def before(self) -> dict[int, int]:
        """The operation before each on its stream."""
        last: dict[Stream, int] = {}
        found = {}
        for index in sorted(self.rank, key=lambda index: self.rank[index]):
            op = self.ops[index]
            stream = (op.process, op.device, op.stream)
            if stream in last:
                found[index] = last[stream]
            last[stream] = index
        return found

    def latest(self, op: int, sources: list[int]) -> int | None:
        """§15.2: of those that can have been waited for, the one that ended last."""
        start_ns, device = self.ops[op].start_ns, self.ops[op].device
        ended = [
            source
            for source in sources
            if self.ops[source].end_ns <= start_ns + OVERLAP_NS
            and (self.ops[source].device != device or self.rank[source] < self.rank[op])
        ]
        return max(ended, key=lambda s: (self.ops[s].end_ns, self.rank[s]), default=None)

    def producer(self, op: int) -> int | None:
        """§15.2: the one that ended last of all."""
        before = [self.before[op]] if op in self.before else []
        return self.latest(op, before + self.awaited.get(op, []))

    @cached_property
    def named(self) -> bool:
        """§15.2a: whether an event is named for which a stream waits."""
        calls = ((wait, self._call(wait)) for wait in self.trace.waits if wait.record is not None)
        return any(call is not None and STREAM_WAIT.fullmatch(call[0]) for _, call in calls)

    @cached_property
    def ended(self) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
        """The operations of a process on a device that took time: end, rank, index."""
        found = defaultdict(list)
        for index, op in enumerate(self.ops):
            if op.end_ns > op.start_ns and op.process is not None:
                found[op.process, op.device].append((op.end_ns, self.rank[index], index))
        return {place: sorted(rows) for place, rows in found.items()}

    def presumed(self, op: int) -> int | None:
        """§15.2 and §15.2a: the same, and who by its times was waited for, where no event is."""
        of_streams, begun = self.producer(op), self.begun(op)
        here = self.ops[op]
        if self.named or begun is None or here.process is None:
            return of_streams
        rows = self.ended.get((here.process, here.device), [])
        before = rows[: bisect_right(rows, (here.start_ns, len(self.ops), 0))]
        if not before:
            return of_streams
        end_ns, _, last = before[-1]
        late_ns = here.start_ns - end_ns
        if end_ns <= begun or late_ns > self.calls.queue_delay_limit_ns(op):
            return of_streams
        return self.latest(op, [last] if of_streams is None else [last, of_streams])

    def by_event(self, op: int) -> int | None:
        """§3.15: the one that ended last of those that its stream was told to wait for."""
        return self.latest(op, self.awaited.get(op, []))

    def unseen(self) -> set[tuple[int | None, int | None]]:
        """§3.4: the launches of the first operation on a stream whose producer is not known."""
        found = set()
        for index, op in enumerate(self.ops):
            producer = self.presumed(index)
            in_time = producer is not None and (self.ops[producer].end_ns + START_NS >= op.start_ns)
            if index not in self.before and not in_time:
                found.add((op.process, op.correlation))
        return found
