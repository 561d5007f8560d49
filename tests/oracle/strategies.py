"""Hypothesis strategies for whole traces: small, readable when shrunk, full of awkward cases.

A trace has a few host threads. Each repeats a small program (wait, call, push, pop, …), and what
it launches is placed on the GPUs. Then rows are added that no program makes (overlapping, negative,
without end, without launch), and all rows are shuffled.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tests.oracle import model
from tests.oracle.model import Call, Copy, Op, PlainTrace, Range, Sample, Shape, side_by_side

# Simple values come first: a failing example shrinks towards them. Then both sides of thresholds:
# 2 us (starved windows), 10 us (queue delay), 50 us (framework gap), 1 ms (lazy loading).
WAITS_NS = (5, 0, 1, 700, 2_000, 9_999, 10_000, 12_000, 30_000, 49_999, 50_000, 50_001, 200_000)
CALLS_NS = (5, 0, 1, 700, 3_000, 8_000, 12_000, 50_000, 1_000_000, 1_000_001, 2_000_000)
OPS_NS = (5, 0, 1, 2, 700, 1_999, 2_001, 4_000, 15_000, 60_000, 1_500_000)
DELAYS_NS = (1, 0, 5, -5, -2_000, 600, 2_000, 9_999, 10_000, 10_001, 40_000)

KERNELS = (
    ("void gemm<1>(float*)", "gemm"),
    ("void gemm<2>(float*)", "gemm"),
    ("void add<1>(float*)", "add"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ("void my_Cross_Device_Reduce_1stage<2>(x)", "my_Cross_Device_Reduce_1stage"),
    ("void flash_fwd_kernel<64>(x)", "flash_fwd_kernel"),
    ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
)
SHAPES = (Shape(), Shape(grid_x=264), Shape(block_x=128, registers=40), Shape(shared_bytes=4096))
COPIES = (
    Copy(4, "HtoD", "pageable", "device"),
    Copy(4096, "DtoH", "device", "pinned"),
    Copy(4096, "DtoH", "device", "pageable"),
    Copy(1 << 20, "HtoD", "pinned", "device"),
    Copy(64, "DtoD", "device", "device"),
    Copy(64, "PtoP", "device", "device"),
    Copy(64, "UVM DtoH", "managed", "managed"),
)
KERNEL_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "hipExtModuleLaunchKernel")
COPY_CALLS = ("cudaMemcpyAsync", "cudaMemcpy", "cuMemcpyDtoH", "hipMemcpyWithStream")
OTHER_CALLS = (
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"),
    *("cudaMalloc", "cudaHostAlloc", "cuMemMap", "hipFree"),  # alloc
    *("cuLibraryLoadData", "cuModuleUnload"),  # module_load
    # api, some of which look like another class
    *("cudaEventQuery", "cudaStreamIsCapturing", "cudaLaunchHostFunc", "cudaGraphAddMemcpyNode"),
    *("cuKernelGetFunction", "cudaStreamWaitEvent", "hipPointerGetAttribute"),
    *("cudaStreamBeginCapture", "cudaStreamEndCapture"),
    *("cudaLaunchKernel", "cudaMemsetAsync"),  # launch, of nothing
)
NAMES = (
    "a",
    "b",
    "",
    "step",
    "c/d",
    "compile",
    "XlaModule:#hlo_module=m#",
    "forward",
    "backward",
    "look",
)
AUTO = "nsysflow.auto"
DOMAINS = (None, None, None, AUTO, AUTO, "mylib", "NCCL", "nccl", "nsysflow.window")
STREAMS = (7, 13)
DEVICES = (0, 1)
THREAD_NAMES = ("python", "pt_autograd_0", "loader", "pt_nccl_watchdg")


def several(kind: st.SearchStrategy[PlainTrace]) -> st.SearchStrategy[PlainTrace]:
    """Up to nine traces in one report, which takes no longer to analyse than one."""
    return st.lists(kind, min_size=1, max_size=9).map(side_by_side)


@dataclass(frozen=True)
class Wait:
    """Code outside CUDA."""

    ns: int


@dataclass(frozen=True)
class Push:
    """A push/pop range opens. The next `Pop` closes it, or the thread's end, or nothing does."""

    name: str
    domain: str | None


@dataclass(frozen=True)
class Pop:
    """The innermost range closes."""


@dataclass(frozen=True)
class Work:
    """One operation that a call launches, and when the GPU runs it."""

    kind: str
    what: int
    """Which kernel or copy."""
    shape: int
    ns: int
    place: str
    """`delay` after its launch's end, `queue` behind the device's last one, or tied with it."""
    delay_ns: int
    device: int
    stream: int


@dataclass(frozen=True)
class Do:
    """A call and what it launches, repeated."""

    api: str
    ns: int
    inner: str
    """No inner call, one of the same correlation id (same start or end), or one of its own."""
    work: tuple[Work, ...] = ()
    times: int = 1
    apart_ns: int = 5


def _work(kind: str) -> st.SearchStrategy[Work]:
    return st.builds(
        Work,
        kind=st.just(kind),
        what=st.integers(0, len(COPIES if kind == "memcpy" else KERNELS) - 1),
        shape=st.integers(0, len(SHAPES) - 1) if kind == "kernel" else st.just(0),
        ns=st.sampled_from(OPS_NS),
        place=st.sampled_from(("delay", "queue", "start_with_last", "end_with_last")),
        delay_ns=st.sampled_from(DELAYS_NS),
        device=st.sampled_from((0, 0, 0, 1)),
        stream=st.sampled_from(STREAMS),
    )


def _do(
    apis: tuple[str, ...], work: st.SearchStrategy[tuple[Work, ...]], **more: st.SearchStrategy[int]
) -> st.SearchStrategy[Do]:
    return st.builds(
        Do,
        api=st.sampled_from(apis),
        ns=st.sampled_from(CALLS_NS),
        inner=st.sampled_from(("", "", "same start", "same end", "own")),
        work=work,
        **more,
    )


_KERNEL = _work("kernel")
_LAUNCH = _do(KERNEL_LAUNCHES, st.tuples(_KERNEL))
_BURST = _do(
    KERNEL_LAUNCHES,
    st.tuples(_KERNEL),
    times=st.integers(7, 10),
    apart_ns=st.sampled_from((5, 3_000, 6_000)),
)
_COPY = _do(COPY_CALLS, st.tuples(_work("memcpy")))
_MEMSET = _do(("cudaMemsetAsync", "cudaMemset"), st.tuples(_work("memset")))
_GRAPH = _do(("cudaGraphLaunch",), st.lists(_KERNEL, max_size=4).map(tuple))
_GRAPH_TRACE = _do(("cudaGraphLaunch",), st.tuples(_work("graph")))
_OTHER = _do(OTHER_CALLS, st.just(()))
_PUSH = st.builds(Push, st.sampled_from(NAMES), st.sampled_from(DOMAINS))
_WAIT = st.builds(Wait, st.sampled_from(WAITS_NS))

_ITEMS: tuple[st.SearchStrategy[Any], ...] = (
    *(_LAUNCH, _LAUNCH, _LAUNCH, _WAIT, _OTHER, _OTHER, _PUSH, _PUSH, st.just(Pop())),
    *(_COPY, _COPY, _BURST, _MEMSET, _GRAPH, _GRAPH_TRACE),
)
_ITEM = st.sampled_from(range(len(_ITEMS))).flatmap(lambda which: _ITEMS[which])


Place = tuple[int, int]
"""Process and thread."""


def _place(pid: int, which: int) -> Place:
    """0 is the main thread (tid = pid), 1 an autograd thread, 2 and 3 others."""
    return pid << 24, pid << 24 | (pid + which)


@dataclass
class _Host:
    """Rows made by the programs. Operations are placed once all launches are known."""

    calls: list[Call] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    pending: list[tuple[Call, Work]] = field(default_factory=list)
    correlations: dict[int, int] = field(default_factory=dict)

    def correlation(self, pid: int) -> int:
        """The next id. It is unique per process; another process has the same numbers."""
        self.correlations[pid] = self.correlations.get(pid, 0) + 1
        return self.correlations[pid]

    def run(
        self, pid: int, which: int, at_ns: int, program: list[Any], *, times: int, closes: bool
    ) -> None:
        """Run one thread's program `times` times."""
        place = _place(pid, which)
        clock = at_ns
        opened: list[tuple[int, Push]] = []

        def pop(end_ns: int | None) -> None:
            start_ns, push = opened.pop()
            self.open((start_ns, end_ns), "push_pop", place, push.domain, push.name)

        for _ in range(times):
            for item in program:
                if isinstance(item, Wait):
                    clock += item.ns
                elif isinstance(item, Push):
                    opened.append((clock, item))
                elif isinstance(item, Pop) and opened:
                    pop(clock)
                elif isinstance(item, Do):
                    for _ in range(item.times):
                        self._call(*place, clock, item)
                        clock += item.ns + (item.apart_ns if item.times > 1 else 0)
        while opened:
            pop(clock if closes else None)

    def open(
        self, times: tuple[int, int | None], kind: str, place: Place, domain: str | None, name: str
    ) -> None:
        """A range; its row is its place among all."""
        self.ranges.append(Range(*times, kind, *place, domain, name, len(self.ranges)))

    def _call(self, process: int, thread: int, at_ns: int, do: Do) -> None:
        pid = process >> 24
        call = Call(at_ns, at_ns + do.ns, process, thread, self.correlation(pid), do.api)
        self.calls.append(call)
        self.pending += [(call, work) for work in do.work]
        if do.inner and do.ns > 1:
            self.calls.append(self._inner(call, do))

    def _inner(self, call: Call, do: Do) -> Call:
        """The driver call inside a runtime call, strictly shorter."""
        if do.inner == "own":
            number = self.correlation(call.process >> 24)
            return replace(
                call, start_ns=call.start_ns + 1, name="cuKernelGetName", correlation=number
            )
        name = "cuMemcpyHtoDAsync" if do.api in COPY_CALLS else "cuLaunchKernel"
        name = name if do.work else do.api
        if do.inner == "same start":
            return replace(call, end_ns=call.end_ns - 1, name=name)
        return replace(call, start_ns=call.start_ns + 1, name=name)


def _ops(pending: list[tuple[Call, Work]]) -> list[Op]:
    """The operations, placed in the order of their launches."""
    last: dict[int, tuple[int, int]] = {}
    ops = []
    nodes: dict[Call, int] = {}
    for call, work in sorted(pending, key=lambda launched: launched[0].start_ns):
        start_ns = call.end_ns + work.delay_ns
        start_of_last, end_of_last = last.get(work.device, (start_ns, start_ns))
        if work.place == "queue":
            start_ns = max(end_of_last, call.start_ns)
        elif work.place == "start_with_last":
            start_ns = start_of_last
        end_ns = start_ns + work.ns
        if work.place == "end_with_last" and end_of_last > start_ns:
            end_ns = end_of_last
        last[work.device] = (start_ns, end_ns)
        nodes[call] = nodes.get(call, 0) + 1
        in_graph = call.name == "cudaGraphLaunch" and work.kind == "kernel"
        node = nodes[call] if in_graph else None
        ops.append(_op(work, start_ns, end_ns, call.process, call.correlation, node))
    return ops


def _op(
    work: Work, start_ns: int, end_ns: int, process: int, number: int | None, node: int | None
) -> Op:
    copy = COPIES[work.what] if work.kind == "memcpy" else None
    shape = SHAPES[work.shape] if work.kind == "kernel" else None
    name, short_name = work.kind, work.kind
    if copy is not None:
        name = short_name = f"memcpy {copy.direction}"
    elif work.kind == "kernel":
        name, short_name = KERNELS[work.what]
    where = work.device, process, work.stream, number, node
    return Op(work.kind, start_ns, end_ns, *where, name, short_name, shape, copy)


_AT_NS = st.sampled_from((0, 5, 10, 1_000, 5_000, 20_000, 60_000, 100_000, 1_000_000))
_LENGTH_NS = st.sampled_from((5, 0, -5, 1, 1_000, 20_000, 60_000, 1_000_000))
_WHICH = st.integers(0, 3)


def _loose_calls(pids: tuple[int, ...]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Calls that overlap others of their thread, or have a negative length or no correlation id."""
    apis = st.sampled_from(OTHER_CALLS + COPY_CALLS)
    has_correlation = st.booleans()
    one = st.tuples(st.sampled_from(pids), _WHICH, _AT_NS, _LENGTH_NS, apis, has_correlation)
    return st.lists(one, max_size=4)


def _loose_ranges(pids: tuple[int, ...]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Start/end ranges, and ranges that overlap, never end, or have zero or negative length."""
    kinds = st.sampled_from(("push_pop", "start_end", "start_end"))
    lengths, names = st.one_of(_LENGTH_NS, st.none()), st.sampled_from(NAMES)
    places = st.sampled_from(pids), _WHICH, _AT_NS
    one = st.tuples(*places, lengths, kinds, st.sampled_from(DOMAINS), names)
    return st.lists(one, max_size=5)


def _borders(pids: tuple[int, ...]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Instants between automatic steps, of processes that train and of others."""
    one = st.tuples(st.sampled_from(pids), _WHICH, _AT_NS, st.sampled_from(("step", "call")))
    return st.one_of(st.just([]), st.lists(one, max_size=6))


def _loose_ops(pids: tuple[int, ...]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Operations without a call: the correlation id is NULL, or that of a call that is missing."""
    works = st.sampled_from(("kernel", "memcpy", "memset", "graph")).flatmap(_work)
    correlation = st.sampled_from((None, 1_000, 1_001))
    one = st.tuples(st.sampled_from(pids), _AT_NS, _LENGTH_NS, correlation, works)
    return st.lists(one, max_size=4)


def _overhead(pids: tuple[int, ...]) -> st.SearchStrategy[list[model.Overhead]]:
    def row(pid: int, which: int, at_ns: int, length_ns: int, name: str) -> model.Overhead:
        return model.Overhead(at_ns, at_ns + length_ns, *_place(pid, which), name)

    names = st.sampled_from(("CUPTI buffer flush", "CUPTI buffer request"))
    one = st.builds(row, st.sampled_from(pids), _WHICH, _AT_NS, _LENGTH_NS, names)
    return st.lists(one, max_size=3)


def _gil(pids: tuple[int, ...]) -> st.SearchStrategy[list[model.Gil]]:
    """Threads that hold the GIL or wait for it, several at once, some without an end."""

    def row(pid: int, which: int, at_ns: int, length_ns: int | None, state: str) -> model.Gil:
        end_ns = None if length_ns is None else at_ns + length_ns
        return model.Gil(at_ns, end_ns, _place(pid, which)[1], state)

    states = st.sampled_from(("holding", "waiting"))
    lengths = st.one_of(_LENGTH_NS, st.none())
    one = st.builds(row, st.sampled_from(pids), _WHICH, _AT_NS, lengths, states)
    return st.one_of(st.just([]), st.lists(one, max_size=8))


_OWN_FILES = ("/home/me/train.py", "/home/me/model/utils.py", "/home/me/data/utils.py", "<string>")
_LIBRARIES = (
    "/opt/lib/python3.12/site-packages/torch/nn.py",
    "/opt/lib/python3.12/site-packages/transformers/trainer.py",
    "/opt/lib/python3.12/site-packages/accelerate/utils.py",
    "/opt/lib/python3.12/threading.py",
    "/opt/lib/python3.12/site-packages/torch/autograd/__init__.py",
    "<frozen runpy>",
)
_OWN_OR_NOT = st.sampled_from((*_OWN_FILES, *_LIBRARIES))
_FUNCTIONS = st.sampled_from(("step", "<module>", "step", "get", "grad", "_engine_run_backward"))
_FRAMES = st.builds(model.Frame, _OWN_OR_NOT, st.sampled_from((1, 42)), _FUNCTIONS)
_STACKS = st.lists(_FRAMES, min_size=1, max_size=3).map(tuple)


def _backtraces(calls: tuple[Call, ...]) -> st.SearchStrategy[list[model.Backtrace]]:
    """Stacks of some calls, some of them twice, and of an instant without a call."""

    def one(call: Call, late_ns: int, frames: tuple[model.Frame, ...]) -> model.Backtrace:
        return model.Backtrace(call.start_ns + late_ns, call.thread, frames)

    if not calls:
        return st.just([])
    some = st.builds(one, st.sampled_from(calls), st.sampled_from((0, 0, 0, 3)), _STACKS)
    return st.lists(some, max_size=8)


_PACES_NS = (1_000, 1, 2, 7, 60, 20_000)
_LATE_NS = (0, 0, 1, -1, 40)


@st.composite
def _samples(draw: Callable[..., Any], calls: tuple[Call, ...]) -> list[Sample]:
    """Samples of the threads of some calls: some missing, late, or two at one instant."""
    found = []
    for call in draw(st.lists(st.sampled_from(calls), max_size=3)) if calls else ():
        pace_ns, at_ns = draw(st.sampled_from(_PACES_NS)), call.end_ns
        one = st.tuples(_STACKS, st.sampled_from(_LATE_NS))
        for sampled in draw(st.lists(st.none() | one, max_size=8)):
            if sampled is not None:
                frames, late_ns = sampled
                found.append(Sample(at_ns + late_ns, call.thread, frames))
            at_ns += pace_ns
    return found


_OPERATORS = st.lists(
    st.sampled_from(
        (model.Frame(None, None, "aten::mm"), model.Frame("/home/me/train.py", 3, "step"))
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def _running(draw: Callable[..., Any], calls: tuple[Call, ...]) -> list[model.Running]:
    """What the threads of some calls ran innermost, with and without pauses."""
    found = []
    chosen = draw(st.lists(st.sampled_from(calls), max_size=2)) if calls else ()
    for thread, at_ns in {call.thread: call.end_ns for call in chosen}.items():
        lengths, pauses = st.sampled_from((5, 1, 700, 60_000)), st.sampled_from((0, 3))
        for length_ns, pause_ns in draw(st.lists(st.tuples(lengths, pauses), max_size=6)):
            found.append(model.Running(at_ns, at_ns + length_ns, thread, draw(_OPERATORS)))
            at_ns += length_ns + pause_ns
    return found


@st.composite
def _gradients(draw: Callable[..., Any], calls: tuple[Call, ...]) -> list[model.Gradient]:
    """Stretches around and beside some calls, some inside each other."""
    chosen = draw(st.lists(st.sampled_from(calls), max_size=4)) if calls else ()
    apart = st.tuples(st.sampled_from((0, 1, 700, -1)), st.sampled_from((0, 1, 60_000)))
    found = []
    for call in chosen:
        before_ns, behind_ns = draw(apart)
        start_ns, end_ns = call.start_ns - before_ns, call.end_ns + behind_ns
        found.append(model.Gradient(start_ns, end_ns, call.thread, draw(_OPERATORS)))
    return found


_COUNTER = st.sampled_from((None, 0, 1, 20, 59, 60, 61, 100))


@st.composite
def _gpu_samples(draw: Callable[..., Any]) -> list[model.GpuSample]:
    """Regular samples with some missing, also of GPUs that ran nothing."""
    found = []
    for device in draw(st.sampled_from(((), (), (0,), (0, 1), (2,)))):
        pace_ns = draw(st.sampled_from((1_000, 10_000, 100_000)))
        at_ns = draw(st.sampled_from((-pace_ns, 0, 5)))
        for counters in draw(st.lists(st.none() | st.tuples(*[_COUNTER] * 5), max_size=8)):
            if counters is not None:
                found.append(model.GpuSample(at_ns, device, *counters))
            at_ns += pace_ns
    return found


_STATE = st.tuples(
    st.sampled_from((None, 0, 1530, 1530, 1980)),
    st.sampled_from((None, 2619)),
    st.sampled_from((None, 0, 350, 700)),
    st.sampled_from((None, 31, 64)),
    st.sampled_from((None, "none", "idle", "power_cap", "thermal", "setting")),
)


@st.composite
def _gpu_states(draw: Callable[..., Any]) -> list[model.GpuState]:
    """Readings in no rhythm, some of one instant, some far apart; also of GPUs that ran nothing."""
    found = []
    for device in draw(st.sampled_from(((), (0,), (0, 1), (2,)))):
        at_ns = draw(st.sampled_from((-2_000_000_000, -999_990_000, -7, 0, 5)))
        pauses = st.sampled_from((0, 1, 1_000, 10_000, 100_000, 1_500_000_000))
        for pause_ns, state in draw(st.lists(st.tuples(pauses, _STATE), max_size=8)):
            at_ns += pause_ns
            found.append(model.GpuState(at_ns, device, *state))
    return found


_RATE = st.sampled_from((None, 0, 7, 25_000_000_000))


@st.composite
def gpu_traffic(draw: Callable[..., Any]) -> list[model.GpuTraffic]:
    """Readings of one process, or of two of one GPU; also of GPUs that ran nothing."""
    found = []
    for device in draw(st.sampled_from(((), (0,), (0, 0), (0, 1), (2,)))):
        at_ns = draw(st.sampled_from((-2_000_000_000, -7, 0, 5)))
        pauses = st.sampled_from((1, 1_000, 10_000, 100_000, 1_500_000_000))
        for pause_ns, rates in draw(
            st.lists(st.tuples(pauses, st.tuples(*[_RATE] * 4)), max_size=6)
        ):
            at_ns += pause_ns
            past_ns = draw(st.sampled_from((pause_ns, pause_ns, 1, 50_000)))
            found.append(model.GpuTraffic(at_ns, device, past_ns, *rates))
    return found


@st.composite
def _thread_cpu(draw: Callable[..., Any], pids: tuple[int, ...]) -> list[model.ThreadCpu]:
    """Readings of threads: of one instant, too early, falling, or waiting longer than passed."""
    found = []
    for pid in pids:
        for which in draw(st.sampled_from(((), (0,), (0, 1)))):
            at_ns, ran, waited = draw(st.sampled_from((-50_000, 0, 7))), 500, 40
            times = st.sampled_from((0, 1, 900, 40_000, 300_000))
            grows = st.sampled_from((0, 3, 800, 20_000, 400_000, -500))
            for pause_ns, more, longer in draw(
                st.lists(st.tuples(times, grows, grows), max_size=7)
            ):
                at_ns, ran, waited = at_ns + pause_ns, max(ran + more, 0), max(waited + longer, 0)
                found.append(model.ThreadCpu(at_ns, _place(pid, which)[1], ran, waited))
    return found


@st.composite
def _process_cpu(draw: Callable[..., Any], pids: tuple[int, ...]) -> list[model.ProcessCpu]:
    """Readings of processes, some without the last three, some of one instant."""
    counters = st.sampled_from((0, 1_000, 250_000, 2_000_000))
    known = st.one_of(st.none(), counters)
    reading = st.tuples(
        *(st.sampled_from((0, 0, 1_000_000)), st.sampled_from(pids), st.sampled_from((1, 4))),
        *(counters, counters, known, st.sampled_from((None, 2_500)), known),
    )
    rows = draw(st.lists(reading, max_size=4))
    return [model.ProcessCpu(at_ns, pid << 24, *values) for at_ns, pid, *values in rows]


@st.composite
def _loader_times(draw: Callable[..., Any], pids: tuple[int, ...]) -> list[model.LoaderTime]:
    """Batches that overlap, end before they begin, or lie outside, and waits of the loop."""
    found = []
    for pid in draw(st.sampled_from(((), (), pids, (*pids, 9)))):
        workers, starts = draw(
            st.sampled_from(((None, None), (0, None), (2, "fork"), (3, "spawn")))
        )
        about: dict[str, Any] = {"workers": workers, "start_method": starts, "cores": 16}
        for loader, worker, at_ns, length_ns, fetch_ns in draw(
            st.lists(
                st.tuples(
                    st.sampled_from((0, 0, 1)),
                    st.sampled_from((None, 0, 1)),
                    _AT_NS,
                    st.sampled_from((0, 1, 700, 20_000, 10**10, -5)),
                    st.sampled_from((0, 3, 500)),
                ),
                max_size=8,
            )
        ):
            fetched_ns = None if worker is None else at_ns + fetch_ns
            place = pid << 24, loader, worker
            found.append(model.LoaderTime(*place, at_ns, fetched_ns, at_ns + length_ns, **about))
    return found


def _messages(ranges: list[Range]) -> st.SearchStrategy[tuple[model.Message, ...]]:
    """The messages of some of NCCL's ranges."""
    nccl = [r for r in ranges if (r.domain or "").lower() == "nccl" and r.row % 3]
    size = st.sampled_from((4096, 0, 1 << 26))
    group = st.sampled_from((None, 7, 8))
    places = sorted({(r.start_ns, r.thread) for r in nccl})
    return st.tuples(
        *(st.builds(model.Message, st.just(at), st.just(on), size, group) for at, on in places)
    )


_DIAGNOSTICS = st.sampled_from(
    (
        (),
        (model.Diagnostic(2, "Not all CUDA events might have been collected."),),
        (
            model.Diagnostic(1, "Profiling has started."),
            model.Diagnostic(3, "CUDA events were lost."),
        ),
    )
)


@st.composite
def traces(draw: Callable[..., Any], *, max_threads: int = 4, max_items: int = 6) -> PlainTrace:
    """A trace of one or two processes on one or two GPUs, which they may share."""
    pids = (1, 2) if draw(st.integers(0, 3)) == 3 else (1,)
    programs = st.tuples(
        st.sampled_from(pids),
        st.sampled_from((0, 0, 0, 1, 1, 2, 3)),
        _AT_NS,
        st.tuples(st.lists(_PUSH, max_size=1), st.lists(_ITEM, min_size=1, max_size=max_items)),
        st.sampled_from((1, 1, 1, 2, 4)),
        st.booleans(),
    )
    host = _Host()
    for pid, which, at_ns, (outer, items), times, cut_off in draw(
        st.lists(programs, min_size=1, max_size=max_threads)
    ):
        host.run(pid, which, at_ns, [*outer, *items], times=times, closes=not cut_off)
    ops = _ops(host.pending)
    for pid, which, at_ns, length_ns, api, has_correlation in draw(_loose_calls(pids)):
        number = host.correlation(pid) if has_correlation else None
        host.calls.append(Call(at_ns, at_ns + length_ns, *_place(pid, which), number, api))
    for pid, which, at_ns, length_ns, kind, domain, name in draw(_loose_ranges(pids)):
        end_ns = None if length_ns is None else at_ns + length_ns
        host.open((at_ns, end_ns), kind, _place(pid, which), domain, name)
    for pid, at_ns, length_ns, correlation, work in draw(_loose_ops(pids)):
        ops.append(_op(work, at_ns, at_ns + length_ns, pid << 24, correlation, None))
    calls = tuple(host.calls)
    rows: dict[str, Any] = {
        "ops": ops,
        "calls": host.calls,
        "ranges": host.ranges,
        "overhead": draw(_overhead(pids)),
        "gil": draw(_gil(pids)),
        "backtraces": draw(_backtraces(calls)),
        "samples": draw(_samples(calls)),
        "running": draw(_running(calls)) if draw(st.integers(0, 3)) == 3 else [],
        "gradients": draw(_gradients(calls)) if draw(st.integers(0, 3)) == 3 else [],
        "gpu_samples": draw(_gpu_samples()),
        "gpu_states": draw(_gpu_states()),
        "thread_cpu": draw(_thread_cpu(pids)),
        "process_cpu": draw(_process_cpu(pids)),
        "loader_times": draw(_loader_times(pids)),
    }
    captured = draw(st.sampled_from(((), (), pids[:1], pids)))
    rows["captures"] = [model.Capture(pid << 24, "3:2:5", 4_500_000) for pid in captured]
    named = draw(st.integers(0, 4))
    rows["threads"] = [
        model.Thread(*_place(pid, which), name)
        for pid in pids
        for which, name in enumerate(THREAD_NAMES)
        if which == 1 or named > which
    ]
    for pid, which, at_ns, name in draw(_borders(pids)):
        host.open((at_ns, at_ns + 1), "push_pop", _place(pid, which), AUTO, name)
    shuffle = random.Random(draw(st.integers(0, 3)))
    of_host = ("ops", "calls", "ranges", "overhead", "threads")
    for kind in (*of_host, "gpu_samples", "samples", "running"):
        shuffle.shuffle(rows[kind])
    rows["devices"] = [
        model.Device(device, "NVIDIA H200", f"GPU-{device}", 132, 4_814_304_000_000)
        for device in DEVICES[: draw(st.integers(0, 2))]
    ]
    rows["diagnostics"] = draw(_DIAGNOSTICS)
    rows["messages"] = draw(_messages(host.ranges))
    rows["flops"] = [
        model.Flops(pid << 24, name, 1_000 + place, "bf16")
        for pid in draw(st.sampled_from(((), pids[:1], pids)))
        for place, name in enumerate(("a", "b", "step"))
    ]
    rows = {kind: tuple(of) for kind, of in rows.items()}
    return PlainTrace(**rows)


_NODE = st.integers(1, 4)
_NEAR_NS = st.sampled_from((0, 1, 3, 700, -1))
_ANY_PID = st.sampled_from((1, 1, 1, 2))


def _replayed(trace: PlainTrace) -> st.SearchStrategy[tuple[list[Call], list[Op]]]:
    """Launches of graphs, each with the operations of some nodes."""
    first = 1 + max((call.correlation or 0 for call in trace.calls), default=0)
    node = st.tuples(_NODE, st.sampled_from((1, 5, 700, 12_000)), _KERNEL)
    one = st.tuples(_ANY_PID, _WHICH, _AT_NS, _NEAR_NS, st.lists(node, min_size=1, max_size=4))

    def rows(drawn: list[tuple[Any, ...]]) -> tuple[list[Call], list[Op]]:
        calls, ops = [], []
        for number, (pid, which, at_ns, near_ns, nodes) in enumerate(drawn, first):
            start_ns = at_ns + near_ns
            place = _place(pid, which)
            calls.append(Call(start_ns, start_ns + 700, *place, number, "cudaGraphLaunch"))
            end_ns = start_ns
            for graph_node, apart_ns, work in nodes:
                start_ns = end_ns + apart_ns
                end_ns = start_ns + work.ns
                ops.append(_op(work, start_ns, end_ns, place[0], number, graph_node))
        return calls, ops

    return st.lists(one, min_size=1, max_size=3).map(rows)


Spot = tuple[int, Place]
"""A time and a place."""


@st.composite
def _captured(draw: st.DrawFn, spots: list[Spot]) -> tuple[list[Call], list[model.GraphNode]]:
    """Begins and ends of captures, and the creation of nodes, near `spots`."""
    spot = st.builds(lambda at, near_ns: (at[0] + near_ns, at[1]), st.sampled_from(spots), _NEAR_NS)
    names = st.sampled_from(("cudaStreamBeginCapture", "cudaStreamEndCapture"))
    marks: list[tuple[Spot, str]] = draw(st.lists(st.tuples(spot, names), max_size=1))
    began_ns = draw(st.sampled_from((-1, 0, 5, 1_000)))
    if draw(st.booleans()):
        marks.append(((began_ns, _place(1, 0)), "cudaStreamBeginCapture"))
    # each node once; and clones, perhaps of nodes that are not there, or of themselves
    originals = st.sampled_from((None, None, None, 1, 2, 3, 9))
    nodes: list[tuple[int, Spot, int | None]]
    nodes = [(node, draw(spot), draw(originals)) for node in range(1, 5)]
    nodes += draw(st.lists(st.tuples(st.integers(1, 6), spot, originals), max_size=3))
    return (
        [Call(at_ns, at_ns + 1, *place, None, name) for (at_ns, place), name in marks],
        [
            model.GraphNode(at_ns, *place, node, original)
            for node, (at_ns, place), original in nodes
        ],
    )


def _opened_at(first_row: int) -> st.SearchStrategy[tuple[Range, ...]]:
    """A few ranges that end, numbered from `first_row`."""
    one = st.tuples(_AT_NS, _LENGTH_NS, _ANY_PID, _WHICH, st.sampled_from(NAMES))

    def rows(drawn: list[tuple[Any, ...]]) -> tuple[Range, ...]:
        return tuple(
            Range(at_ns, at_ns + ns, "push_pop", *_place(pid, which), None, name, row)
            for row, (at_ns, ns, pid, which, name) in enumerate(drawn, first_row)
        )

    return st.lists(one, min_size=1, max_size=6).map(rows)


@st.composite
def traces_with_graphs(draw: st.DrawFn) -> PlainTrace:
    """Traces with replays of graphs, captured in ranges, outside, or before the recording."""
    trace = draw(traces(max_threads=2, max_items=3))
    launches, ops = draw(_replayed(trace))
    ranges = (*trace.ranges, *draw(_opened_at(len(trace.ranges))))
    listed = draw(_opened_at(0))
    opened = [(row.start_ns, (row.process, row.thread)) for row in (*ranges, *listed)]
    elsewhere = [(0, _place(1, 0)), (5, _place(1, 1)), (-(10**9), _place(1, 0))]
    marks, nodes = draw(_captured(opened + elsewhere))
    return replace(
        trace,
        ops=(*trace.ops, *ops),
        calls=(*trace.calls, *launches, *marks),
        ranges=ranges,
        graph_nodes=tuple(nodes),
        graph_ranges=listed,
    )


@st.composite
def traces_with_events(draw: st.DrawFn) -> PlainTrace:
    """Traces in which streams were told to wait for events of other streams.

    Most calls begin close to a launch, since those around it decide who waits for whom.
    """
    trace = draw(traces())
    times = sorted({call.start_ns for call in trace.calls}) or [0]
    first = 1 + max((call.correlation or 0 for call in trace.calls), default=0)
    near_ns = st.sampled_from((0, 1, -1, 700))
    where = st.sampled_from(DEVICES), st.sampled_from(STREAMS)
    spot = st.tuples(st.sampled_from(times), near_ns, *where)
    calls: list[Call] = []
    records, waits = [], []
    pairs = draw(st.lists(st.tuples(spot, spot, st.sampled_from((1, 1, 2))), max_size=12))
    for number, (recorded, waiting, pid) in enumerate(pairs, 1):
        place = _place(pid, 0)
        for name, (launch_ns, after_ns, device, stream) in (
            ("cudaEventRecord", recorded),
            ("cudaStreamWaitEvent", waiting),
        ):
            at_ns, correlation = launch_ns + after_ns, first + len(calls)
            calls.append(Call(at_ns, at_ns + 1, *place, correlation, name))
            row = (place[0], device, correlation, stream, number)
            if name == "cudaEventRecord":
                records.append(model.EventRecord(*row))
            else:
                waits.append(model.EventWait(*row))
    return replace(
        trace, calls=(*trace.calls, *calls), event_records=tuple(records), waits=tuple(waits)
    )


@st.composite
def traces_with_readings(draw: st.DrawFn) -> PlainTrace:
    """Traces with CPU times and samples of threads that launch and of others, without the GIL."""
    trace = draw(traces())
    pids = sorted({call.process >> 24 for call in trace.calls})
    last_ns = max((op.end_ns for op in trace.ops), default=1)
    samples, thread_cpu = list(trace.samples), []
    shares = st.sampled_from((0, 0, 5, 30, 60, 100))
    for pid in pids:
        for which in draw(st.sampled_from(((0, 2), (0, 1, 2, 3), (0, 3), (1, 2), (0,)))):
            thread, ran, waited = _place(pid, which)[1], 0, 0
            at_ns = draw(st.sampled_from((-9, 0, 7)))
            pace_ns = max(1, last_ns // draw(st.sampled_from((1, 3, 10))))
            for share, late in draw(st.lists(st.tuples(shares, shares), min_size=2, max_size=9)):
                thread_cpu.append(model.ThreadCpu(at_ns, thread, ran, waited))
                ran, waited = ran + share * pace_ns // 100, waited + late * pace_ns // 500
                at_ns += pace_ns
            pace_ns = max(1, last_ns // draw(st.sampled_from((2, 8, 20))))
            for number, frames in enumerate(draw(st.lists(_STACKS, min_size=2, max_size=20))):
                samples.append(Sample(number * pace_ns, thread, frames))
    return replace(trace, gil=(), running=(), samples=tuple(samples), thread_cpu=tuple(thread_cpu))


@st.composite
def traces_with_retries(draw: st.DrawFn) -> PlainTrace:
    """Traces in which threads take memory and give it back, and some calls find none."""
    trace = draw(traces(max_threads=2, max_items=3))
    names = ("cudaMalloc", "cudaFree", "cuMemCreate", "cuMemRelease", "cudaDeviceSynchronize")
    one = st.tuples(st.sampled_from(names), st.sampled_from(CALLS_NS), st.sampled_from(WAITS_NS))
    calls = list(trace.calls)
    for which in draw(st.sampled_from(((0,), (0, 2)))):
        clock = draw(_AT_NS)
        for name, took_ns, wait_ns in draw(st.lists(one, min_size=3, max_size=9)):
            calls.append(Call(clock, clock + took_ns, *_place(1, which), None, name))
            clock += took_ns + wait_ns
    chosen = draw(st.sampled_from((1, 2, 3)))  # by its time, so that equal calls fail alike
    failed = (
        call
        for call in calls
        if "Malloc" in call.name or "Create" in call.name
        if call.start_ns // 5 % 4 < chosen
    )
    return replace(trace, calls=tuple(calls), failed_calls=tuple(failed))
