"""One report with gaps, phases and sources: what every table is made from."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from functools import cached_property
from typing import Any

from tests.oracle.accounting import Interval, covered, window
from tests.oracle.calls import Calls
from tests.oracle.gaps import CAUSES, FRAMEWORK_GAP_NS, Gap, Gaps
from tests.oracle.model import LOW_24_BITS, Device, PlainTrace
from tests.oracle.once import grouped_by, unmeasured
from tests.oracle.phases import NOWHERE, Captured, Open, Place
from tests.oracle.sources import Lines, Sources

Row = dict[str, Any]
Path = tuple[str, ...]


def os_pid(process: int | None) -> int | None:
    """§1.7: OS pid = `(globalPid >> 24) & 0xFFFFFF`."""
    return None if process is None else (process >> 24) & LOW_24_BITS


def os_tid(thread: int) -> int:
    """§1.7: OS tid = `globalTid & 0xFFFFFF`."""
    return thread & LOW_24_BITS


def joined(path: Path) -> str:
    """§7.8: a path is written joined by `/`."""
    return "/".join(path)


def prefixes(place: Place) -> list[tuple[Path, Open]]:
    """§7.8: every prefix of the path, with the innermost range of the prefix."""
    return [(place.path[: k + 1], range_) for k, range_ in enumerate(place.ranges)]


def causes_of(gaps: list[Gap]) -> dict[str, int]:
    """One `…_ns` column per cause."""
    return {f"{cause}_ns": sum(gap.causes[cause] for gap in gaps) for cause in CAUSES}


class Report:
    """A trace with its gaps and the phase of each call and operation."""

    @unmeasured
    def __init__(
        self,
        trace: PlainTrace,
        *,
        framework_gap_ns: int = FRAMEWORK_GAP_NS,
        whole: Calls | None = None,
        own: tuple[str, ...] = (),
    ) -> None:
        self.trace = trace
        self.gaps = Gaps(trace, framework_gap_ns=framework_gap_ns, whole=whole)
        self.calls = self.gaps.calls
        self.ops = self.calls.ops
        self.phases = self.gaps.phases
        self.phases.automatic_steps = {
            process: steps
            for process, steps in self.phases.automatic_steps.items()
            if not self._captures_its_loop(process, steps)
        }
        self.captured = Captured(trace, self.calls, self.phases)
        self.devices = sorted({op.device for op in self.ops})
        self.processes = sorted({call.process for call in self.calls.calls})
        self.sources = Sources(trace, self.calls, own)
        self._on = grouped_by(lambda index: self.ops[index].device, range(len(self.ops)))
        self._places: dict[int, Place] = {}
        self._op_places: dict[int, Place] = {}

    def gpu(self, device: int) -> Device | None:
        """The physical GPU of that number."""
        return next((row for row in self.trace.devices if row.device == device), None)

    def gpu_name(self, device: int) -> str | None:
        """Its name."""
        gpu = self.gpu(device)
        return None if gpu is None else gpu.name

    def about(self, process: int | None, **more: Any) -> Row:
        """The columns that say what a row is of."""
        return {"report": self.trace.report, "process": os_pid(process), **more}

    def place(self, call: int) -> Place:
        """§7.3: where a call was made."""
        if call not in self._places:
            row = self.calls.calls[call]
            self._places[call] = self.phases.at(row.process, row.thread, row.start_ns)
        return self._places[call]

    def op_place(self, op: int) -> Place:
        """§7: an operation belongs to where it was launched, and inside a graph captured."""
        launch = self.calls.launch[op]
        if launch is None:
            return NOWHERE
        if op not in self._op_places:
            self._op_places[op] = self.captured.place(self.ops[op], launch, self.place(launch))
        return self._op_places[op]

    def on(self, device: int) -> list[int]:
        """The operations of a device."""
        return self._on.get(device, [])

    def starting_in(self, device: int, start_ns: int, end_ns: int) -> list[int]:
        """The operations of a device that start in `[start_ns, end_ns)`, in order of start."""
        starts, ops = self._by_start.get(device, ([], []))
        return ops[bisect_left(starts, start_ns) : bisect_left(starts, end_ns)]

    @cached_property
    def _by_start(self) -> dict[int, tuple[list[int], list[int]]]:
        """Per device the starts, and the operations, in order."""
        found = {}
        for device in self.devices:
            ops = sorted(self.on(device), key=lambda index: self.ops[index].start_ns)
            found[device] = [self.ops[index].start_ns for index in ops], ops
        return found

    @cached_property
    def induced(self) -> Counter[int]:
        """§4.1: the idle time that each sync, blocking_copy or alloc call is charged with."""
        return self.gaps.induced()

    @cached_property
    def _gaps_on(self) -> dict[int, list[Gap]]:
        return grouped_by(lambda gap: gap.device, self.gaps.gaps)

    def gaps_on(self, device: int) -> list[Gap]:
        """The gaps of a device."""
        return self._gaps_on.get(device, [])

    def gaps_in(self, device: int, start_ns: int, end_ns: int) -> list[Gap]:
        """The gaps of a device with an instant in `[start_ns, end_ns)`: they are in order."""
        gaps = self.gaps_on(device)
        first = bisect_right(gaps, start_ns, key=lambda gap: gap.end_ns)
        return gaps[first : bisect_left(gaps, end_ns, key=lambda gap: gap.start_ns)]

    @cached_property
    def windows(self) -> dict[int, list[Interval]]:
        """§2.1: per device, from the first operation to the last."""
        return {d: window(self.ops[i] for i in self.on(d)) for d in self.devices}

    @cached_property
    def busy(self) -> dict[int, list[Interval]]:
        """§2: per device, the time in which any operation runs."""
        return {d: covered(self.ops[i] for i in self.on(d)) for d in self.devices}

    def source(self, gap: Gap, cause: str) -> Lines:
        """§11.6: the lines of the culprit's call, or of `L` if there is no such call."""
        culprit = None if cause == "profiler" else self.gaps.culprit_call(gap, cause)
        return self.sources.of(self.calls.launch[gap.next_op] if culprit is None else culprit)

    def _captures_its_loop(self, process: int, steps: list[Open]) -> bool:
        """§8.20: whether graphs behind the automatic steps of a process have most of its time."""
        all_ns = behind_ns = 0
        last_ns = max(one.end_ns for one in steps)
        for index, op in enumerate(self.ops):
            if op.process != process:
                continue
            all_ns += op.end_ns - op.start_ns
            is_graph = op.kind == "graph" or op.graph_node is not None
            call = self.calls.caller(index)
            if is_graph and call is not None and call.start_ns >= last_ns:
                behind_ns += op.end_ns - op.start_ns
        return 2 * behind_ns > all_ns

    def launch_process(self, gap: Gap) -> int | None:
        """The process of `L`."""
        call = self.calls.caller(gap.next_op)
        return None if call is None else call.process

    @cached_property
    def ops_by_instance(self) -> dict[int, dict[tuple[Path, Open], list[int]]]:
        """Per process, the operations in each instance of each path."""
        found: dict[int, dict[tuple[Path, Open], list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for index in range(len(self.ops)):
            if (call := self.calls.caller(index)) is not None:
                for instance in prefixes(self.op_place(index)):
                    found[call.process][instance].append(index)
        return found
