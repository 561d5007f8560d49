"""In which ranges the work of CUDA graphs was captured (spec §7.13 to §7.17)."""

from collections import defaultdict
from dataclasses import replace

from tests.oracle.calls import Calls
from tests.oracle.model import GraphNode, Op, PlainTrace
from tests.oracle.phases import Open, Phases, Place


class Captured:
    """Finds the path of an operation, given that of its launch."""

    def __init__(self, trace: PlainTrace, calls: Calls, phases: Phases) -> None:
        self.calls, self.phases = calls, phases
        self.listed = Phases(replace(trace, ranges=trace.graph_ranges))
        self.created: dict[tuple[int | None, int], list[GraphNode]] = defaultdict(list)
        for row in sorted(trace.graph_nodes, key=lambda row: row.start_ns):
            self.created[row.process, row.node].append(row)

    def place(self, op: Op, launch: int, place: Place) -> Place:
        """§7.15: the path of the launch, followed by the captured ranges."""
        opened = self.ranges(op.process, op.graph_node)
        # §7.14: without those of which the name is in the path of the launch
        added = [range_ for range_ in opened if range_.name not in place.path]
        if not added:
            return place
        # §7.17: each launch has instances of its own
        call = self.calls.calls[launch]
        mine = [
            replace(
                range_,
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                thread=call.thread,
                cut_off=False,
                replay=launch,
            )
            for range_ in added
        ]
        return Place((*place.ranges, *mine), "captured")

    def ranges(self, process: int | None, node: int | None) -> tuple[Open, ...]:
        """§7.14: the ranges around the captured node that opened after the capture began."""
        origin = None if node is None else self._origin(process, node)
        if origin is None or origin.thread is None or origin.process is None:
            return ()
        at = origin.start_ns
        began = self.calls.capture_began(origin.process, at)
        if began is None:  # §7.16
            return self.listed.at(origin.process, origin.thread, at).ranges
        opened = self.phases.at(origin.process, origin.thread, at).ranges
        return tuple(range_ for range_ in opened if range_.start_ns >= began)

    def _origin(self, process: int | None, node: int) -> GraphNode | None:
        """§7.13: where the chain of originals ends; None if it leads back, or to no node."""
        seen: set[int] = set()
        while node not in seen and (process, node) in self.created:
            seen.add(node)
            rows = self.created[process, node]
            originals = [row.original for row in rows if row.original is not None]
            if not originals:
                return rows[0]
            node = originals[0]
        return None
