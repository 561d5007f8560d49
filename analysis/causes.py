"""Every cause of idle time, declared once.

The order is that of spec §3, which breaks ties. Call classes, columns, words on screens, help and
the spec's table are made from this list.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["profiler", "stall", "call", "launch", "other call", "host", "queue", "unknown"]
"""Where the time of a cause is found: in the profiler's own work; in a call that blocks the host
(`stall`); in a call of its own patterns (`call`); in launch calls and close around them (`launch`);
in any other call (`other call`); between calls (`host`); after the launch, in the GPU's queue
(`queue`); or nowhere, as something was not recorded."""


RUNTIME: Final = "(?:cuda|cu|hip)"
"""What names of calls begin with: of CUDA's runtime, of its driver, of AMD's HIP."""

KERNEL_LAUNCH: Final = (
    r"(?:(?:cuda|cu)(?:Graph)?Launch|hip(?:Ext|Module|ExtModule|HccModule|Drv|Graph)?Launch)"
)
"""What names of calls begin with that launch a kernel or a graph, and some that do not."""

ALLOCATES: Final = r"cudaMalloc(?:Async)?|cuMem(?:Alloc(?:Async)?|Create)"
"""The whole names of calls that take memory of the GPU."""

FREES: Final = r"cudaFree(?:Async)?|cuMem(?:Free(?:Async)?|Unmap|Release)"
"""The whole names of calls that give it back."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason why a GPU idles.

    Attributes:
        name: as tables spell it; its column is `NAME_ns`.
        kind: where its time is found.
        meaning: what it means, for the spec and for help.
        label: the words for it on screens.
        bound: the verdict's word where most of the time is idle for this cause.
        waits: the verdict's words for the GPU meanwhile, as they follow a share of the time.
        calls: which calls of CUDA or HIP make it, as a pattern on the whole name without version
            suffix; None where no name decides. Of two causes that match, the first one counts.
        calls_not: which of these do not, as a pattern on a part of the name.
        claim: which of several calls on one instant counts, lowest first; None where no call does.
    """

    name: str
    kind: Kind
    meaning: str
    label: str
    bound: str
    waits: str
    calls: str | None = None
    calls_not: str | None = None
    claim: int | None = None


DECLARED: Final = (
    Cause(
        name="profiler",
        kind="profiler",
        meaning="the profiler's own work held either thread",
        label="profiler",
        bound="profiler-bound",
        waits="waiting for the profiler",
        claim=0,
    ),
    Cause(
        name="sync",
        kind="stall",
        meaning="the host was blocked in an explicit synchronization",
        label="waiting in a sync",
        bound="sync-bound",
        waits="waiting in a sync",
        calls=rf"{RUNTIME}(?:Device|Stream|Event|Thread|Ctx)Synchronize",
        claim=1,
    ),
    Cause(
        name="blocking_copy",
        kind="stall",
        meaning="the host was blocked in a copy: pageable memory, or a synchronous memcpy",
        label="waiting in a copy",
        bound="copy-bound",
        waits="waiting in a copy",
        calls=rf"{RUNTIME}Memcpy.*",
        calls_not=r"Async",
        claim=1,
    ),
    Cause(
        name="alloc",
        kind="stall",
        meaning="device or pinned memory was being allocated or freed",
        label="allocating memory",
        bound="allocation-bound",
        waits="waiting for allocations",
        calls=(
            r"(?:cuda|hip)(?:Malloc.*|Free.*|MemPool.*|Host(?:Alloc|Register|Unregister))"
            r"|hip(?:HostMalloc|HostFree|ExtMalloc.*)"
            r"|(?:cu|hip)Mem(?:Alloc.*|Free.*|Host.*|Create|Map.*|Unmap|Release|SetAccess"
            r"|Address.*|Pool.*)"
        ),
        claim=2,
    ),
    Cause(
        name="module_load",
        kind="call",
        meaning="GPU code was being loaded, linked or compiled on first use",
        label="loading GPU code",
        bound="bound by loading code",
        waits="loading kernels",
        calls=(
            r"(?:cu|hip)Module(?:Load.*|Unload)|(?:cuda|cu|hip)Library(?:Load.*|Unload)"
            r"|(?:cu|hip)Link.*"
        ),
        claim=3,
    ),
    Cause(
        name="api",
        kind="other call",
        meaning="another call of CUDA or HIP",
        label="other API calls",
        bound="bound by other API calls",
        waits="waiting for other API calls",
        claim=5,
    ),
    Cause(
        name="host",
        kind="host",
        meaning="application code outside CUDA and HIP: Python, data loading, the framework",
        label="host code",
        bound="host-bound",
        waits="waiting for the host",
    ),
    Cause(
        name="launch",
        kind="launch",
        meaning="launch overhead: launch calls, and the framework's code between them",
        label="launch overhead",
        bound="launch-bound",
        waits="waiting for launches",
        calls=rf"(?:{KERNEL_LAUNCH}|{RUNTIME}Mem(?:cpy|set|Prefetch)).*",
        calls_not=r"LaunchHostFunc$",
        claim=4,
    ),
    Cause(
        name="queue_delay",
        kind="queue",
        meaning="the work was queued, and started up to 10 us later (30 us on AMD)",
        label="queue delay",
        bound="bound by queue delay",
        waits="waiting in the queue",
    ),
    Cause(
        name="dependency",
        kind="queue",
        meaning="the work was queued, and waited longer: for an event, another stream or GPU",
        label="waiting for GPU work",
        bound="dependency-bound",
        waits="waiting for GPU work",
    ),
    Cause(
        name="unknown",
        kind="unknown",
        meaning="the launch of the work, or what it waited for, is not in the report",
        label="not recorded",
        bound="unexplained",
        waits="waiting for what is not recorded",
    ),
)
"""All causes, in the order that breaks ties."""

CAUSES: Final = {cause.name: cause for cause in DECLARED}
"""All causes, by name."""

STALLS: Final = tuple(cause.name for cause in DECLARED if cause.kind == "stall")
"""The causes that are charged to one call, and that a call can bring about after it returned."""

IN_CALLS: Final = tuple(cause.name for cause in DECLARED if cause.kind == "call")
"""The causes that take the time inside their own calls, and no more."""

WITH_CULPRIT: Final = tuple(cause.name for cause in DECLARED if cause.claim is not None)
"""The causes whose time is that of single calls, or of the profiler's work."""

BY_HOST: Final = tuple(
    cause.name for cause in DECLARED if cause.kind not in ("profiler", "queue", "unknown")
)
"""The causes of idle time in which the GPU waits for the host."""
