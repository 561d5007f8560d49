"""Which call launched each operation, and the class of each call (spec §1, §3)."""

import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import Any

from tests.oracle.model import Call, Op, PlainTrace
from tests.oracle.once import grouped_by

SYNC = re.compile(
    r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize"
    r"|hip(Device|Stream|Event|Ctx)Synchronize"
)
ALLOC = re.compile(
    r"cudaMalloc.*|cudaFree.*|cudaHostAlloc|cudaHostRegister|cudaHostUnregister|cudaMemPool.*"
    r"|cuMemAlloc.*|cuMemFree.*|cuMemHost.*|cuMemCreate|cuMemMap.*|cuMemUnmap|cuMemRelease"
    r"|cuMemSetAccess|cuMemAddress.*|cuMemPool.*"
    r"|hipMalloc.*|hipExtMalloc.*|hipFree.*|hipHostMalloc|hipHostAlloc|hipHostFree"
    r"|hipHostRegister|hipHostUnregister|hipMemPool.*|hipMemAlloc.*|hipMemCreate|hipMemMap.*"
    r"|hipMemUnmap|hipMemRelease|hipMemSetAccess|hipMemAddress.*"
)
MODULE_LOAD = re.compile(
    r"cuModuleLoad.*|cuModuleUnload|cuLibraryLoad.*|cuLibraryUnload"
    r"|cudaLibraryLoad.*|cudaLibraryUnload|cuLink.*"
    r"|hipModuleLoad.*|hipModuleUnload|hipLibraryLoad.*|hipLibraryUnload|hipLink.*"
)
LAUNCH = re.compile(
    r"(cuda|cu)(Launch|GraphLaunch|Memcpy|Memset|MemPrefetch).*"
    r"|hip(|Ext|Module|ExtModule|HccModule|Drv|Graph)Launch.*|hipMem(cpy|set|Prefetch).*"
)
MEMCPY = re.compile(r"(cuda|cu|hip)Memcpy.*")
KERNEL_LAUNCH = re.compile(r"(cuda|cu)Launch.*|hip(|Ext|Module|ExtModule|HccModule|Drv)Launch.*")
CAPTURE = re.compile(r"(cuda|cu|hip)Stream(Begin|End)Capture.*")

SLOW_FIRST_LAUNCH_NS = 1_000_000
STALLS = ("sync", "blocking_copy", "alloc")


def class_by_name(name: str) -> str:
    """§3, classes of calls, as far as the name decides; what needs the operation comes later."""
    if SYNC.fullmatch(name):
        return "sync"
    if ALLOC.fullmatch(name):
        return "alloc"
    if MODULE_LOAD.fullmatch(name):
        return "module_load"
    if LAUNCH.fullmatch(name) and not name.endswith("LaunchHostFunc"):
        if MEMCPY.fullmatch(name) and "Async" not in name:
            return "blocking_copy"
        return "launch"
    return "api"


def call_order(call: Call) -> tuple[int, int, bool, int, int, str]:
    """§3.6, ties; the spec ends with the correlationId: thread and name make the order total."""
    return (
        call.start_ns,
        -call.end_ns,
        call.correlation is None,
        call.correlation or 0,
        call.thread,
        call.name,
    )


def lacking_launches(ops: list[Op]) -> dict[tuple[int | None, int | None], int]:
    """§12.1: of each launch of a graph that lacks some, how many operations it lacks."""
    launches: dict[tuple[int | None, int | None], set[int]] = defaultdict(set)
    for op in ops:
        if op.graph_node is not None:
            launches[op.process, op.correlation].add(op.graph_node)
    counts = Counter((process, node) for (process, _), nodes in launches.items() for node in nodes)
    graph_of = {
        (process, number): (process, min((-counts[process, node], node) for node in nodes)[1])
        for (process, number), nodes in launches.items()
    }
    nodes_of: dict[tuple[int | None, int], set[int]] = defaultdict(set)
    for launch, nodes in launches.items():
        nodes_of[graph_of[launch]] |= nodes
    lacks = {launch: len(nodes_of[graph_of[launch]] - nodes) for launch, nodes in launches.items()}
    return {launch: count for launch, count in lacks.items() if count}


class Calls:
    """The valid operations and calls of a trace, named by their index in `ops` and `calls`."""

    def __init__(self, trace: PlainTrace, whole: "Calls | None" = None) -> None:
        # §1.6: rows of negative length are dropped
        self.ops: list[Op] = [op for op in trace.ops if op.end_ns >= op.start_ns]
        # in the order of ties, so that of two calls the smaller index comes first
        self.calls: list[Call] = sorted(
            (call for call in trace.calls if call.end_ns >= call.start_ns), key=call_order
        )
        self._marks: dict[int, list[Call]] | None = None
        self._join()
        self.lacking: dict[tuple[int | None, int | None], int]
        self.unseen: set[tuple[int | None, int | None]] = set()
        """§3.4: filled by `Gaps`."""
        self.classes: list[str]
        if whole is not None:  # §15.7: those of the whole trace
            self.lacking, self.classes = whole.lacking, whole.classes
            self.unseen = whole.unseen
            return
        self.lacking = lacking_launches(self.ops)
        self.classes = [class_by_name(call.name) for call in self.calls]
        self._class_pageable_copies()
        self._class_lazy_loading()

    @cached_property
    def by_thread(self) -> dict[int, list[int]]:
        """The calls of each thread."""
        return grouped_by(lambda index: self.calls[index].thread, range(len(self.calls)))

    def caller(self, op: int) -> Call | None:
        """The call that launched an operation."""
        launch = self.launch[op]
        return None if launch is None else self.calls[launch]

    def order(self, op: int) -> tuple[Any, ...]:
        """§3.1, §1.10: the order of operations that start together; names make it total."""
        row, call = self.ops[op], self.caller(op)
        begun = None if call is None else call.start_ns
        numbers = (begun, row.correlation, row.stream, row.graph_node)
        ties = [(number is None, number or 0) for number in numbers]
        return (*ties, row.short_name, row.name, row.process is None, row.process or 0)

    def queue_delay_limit_ns(self, op: int) -> int:
        """§3.4: how late an operation may start, to be only delayed."""
        call = self.caller(op)
        assert call is not None
        return 30_000 if call.name.startswith("hip") else 10_000

    def capture_began(self, process: int, t: int) -> int | None:
        """§12.3: when the stream capture of a process began that was on before t."""
        if self._marks is None:
            marks = (call for call in self.calls if CAPTURE.fullmatch(call.name))
            self._marks = grouped_by(lambda call: call.process, marks)
        before = [call for call in self._marks[process] if call.start_ns < t]
        return before[-1].start_ns if before and "Begin" in before[-1].name else None

    def _join(self) -> None:
        """§1.8: join on (process, correlationId), never on NULL or 0."""
        self.named: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, call in enumerate(self.calls):
            if call.correlation:
                self.named[call.process, call.correlation].append(index)
        self.launch: list[int | None] = []
        self.launched: dict[int, list[int]] = defaultdict(list)
        for index, op in enumerate(self.ops):
            outermost = None
            if op.process is not None and op.correlation:
                # `named` is in the order of start, then longer
                outermost = next(iter(self.named.get((op.process, op.correlation), ())), None)
            self.launch.append(outermost)
            if outermost is not None:
                self.launched[outermost].append(index)

    def _class_pageable_copies(self) -> None:
        """§3, class blocking_copy: a `Memcpy…` whose operation reads or writes pageable memory."""
        for op in self.ops:
            if op.copy is None or op.process is None or not op.correlation:
                continue
            if "pageable" in (op.copy.source_memory, op.copy.target_memory):
                for index in self.named.get((op.process, op.correlation), ())[:1]:
                    if MEMCPY.fullmatch(self.calls[index].name):
                        self.classes[index] = "blocking_copy"

    def _class_lazy_loading(self) -> None:
        """§3, class module_load: a launch call of over 1 ms that is the first of its kernel."""
        first: dict[tuple[int, str], int] = {}
        for index, op in enumerate(self.ops):
            launch = self.launch[index]
            if op.kind != "kernel" or launch is None or op.process is None:
                continue
            name = self.calls[launch].name
            if KERNEL_LAUNCH.fullmatch(name) and self.classes[launch] == "launch":
                key = (op.process, op.name)
                first[key] = min(launch, first.get(key, launch))
        for index in first.values():
            call = self.calls[index]
            if call.end_ns - call.start_ns > SLOW_FIRST_LAUNCH_NS:
                self.classes[index] = "module_load"
