"""The bottlenecks: one row for each, with its words and what to do about it."""

from dataclasses import dataclass, replace
from typing import Final

from nsysflow.analysis.steps.kinds import SKIPPED


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """One reason why GPUs do not compute.

    Attributes:
        kind: the verdict's word for a program that loses most of its time to it.
        columns: the columns of accounting that add up to it.
        what: what happens, a noun phrase. `{call}` is the CUDA call with the most idle time,
            `{place}` says where, `{rank}` is the straggler.
        advice: what to do next; `{there}` says where.
    """

    kind: str
    columns: tuple[str, ...]
    what: str
    advice: str


HOST: Final = Bottleneck(
    kind="host-bound",
    columns=("host_ns",),
    what="host code{place}",
    advice="see what Python does{there}; do it less often, later, or in another thread",
)

SCATTERED_ADVICE: Final = (
    "see what Python does between the launches; do it less often or later, or launch a whole step"
    " as one CUDA graph"
)
"""Instead of HOST's, where no single place has half of the time."""

EAGER_ADVICE: Final = (
    "launch less often from Python{there}, with torch.compile or a CUDA graph: this host code is"
    " many short pauses between launches"
)
"""Instead of HOST's, where an eager framework spends the time between two operators."""

OUTSIDE_ADVICE: Final = {
    True: "put NVTX ranges around the code between the steps (data loading, logging) to name it",
    False: "look at the steps alone (--steps 0:), or put NVTX ranges around the rest to name it",
    None: "put NVTX ranges around the parts of the program (data, forward, logging) to name them",
}
"""Instead of HOST's, where no range was open: between the steps (True), before or after them
(False), or where there are no steps (None)."""

START_UP_ADVICE: Final = "look at the steps alone, which contain less than half of it: --steps 0:"
"""Instead of any, where most of the time is before or after the steps."""

LAUNCH: Final = Bottleneck(
    kind="launch-bound",
    columns=("launch_ns", "queue_delay_ns"),
    what="launch overhead{place}",
    advice="launch less{there}: torch.compile, a CUDA graph, fused or larger kernels",
)

GRAPHED_ADVICE: Final = "replay less{there}: more work in each CUDA graph, fused or larger kernels"
"""Instead of LAUNCH's, where the launches are of CUDA graphs already."""

COMMUNICATION: Final = Bottleneck(
    kind="communication-bound",
    columns=("comm_exposed_ns",),
    what="exposed communication",
    advice="overlap it with compute (buckets, another stream) or send less: --table comm",
)

WAITING: Final = replace(
    COMMUNICATION,
    what="waiting in collectives for {rank}",
    advice="see why {rank} is late (its data, its host, its share of the work): --table ranks",
)
"""Instead of COMMUNICATION, where ranks mostly wait in their collectives for a straggler."""

UNEVEN: Final = replace(
    COMMUNICATION,
    what="waiting in collectives (the slowest rank varies)",
    advice="balance the work of the ranks between two collectives: --table arrivals",
)
"""Instead of WAITING, where no rank is twice as late as any other."""

SENDING: Final = replace(
    COMMUNICATION,
    what="exposed sends and receives",
    advice="shorten the pipeline's bubbles (more microbatches, interleaved stages): --table comm",
)
"""Instead of COMMUNICATION, where ranks send to each other, like the stages of a pipeline."""

COPIES: Final = Bottleneck(
    kind="copy-bound",
    columns=("blocking_copy_ns", "copy_exposed_ns"),
    what="exposed copies{place}",
    advice=(
        "overlap the copies{there} (pinned memory, non_blocking=True, another stream, started"
        " earlier or read later): --table copies"
    ),
)

READ_BACK: Final = replace(
    COPIES,
    what="reading a few bytes back with {call}{place}",
    advice="drop the read{there} (.item(), .cpu(), `if tensor`), or do it some steps later",
)
"""Instead of COPIES, where the host waits for a value: pinned memory does not shorten that."""

ON_GPU: Final = replace(
    COPIES,
    what="exposed copies within the GPU{place}",
    advice="copy less{there} (write in place, without cat, clone, contiguous): --table copies",
)
"""Instead of COPIES, where the data stay on the GPU: there is nothing to pin."""

PEERS: Final = replace(
    COPIES,
    what="exposed copies between GPUs{place}",
    advice="overlap them with compute{there} on another stream, or send less: --table copies",
)
"""Instead of COPIES, where no host memory is involved."""

CLEARING: Final = replace(
    COPIES,
    what="exposed memsets{place}",
    advice="clear less{there}: zero_grad(set_to_none=True), torch.empty for what is overwritten",
)
"""Instead of COPIES, where most are memsets, which the table of copies does not contain."""

LOADING: Final = Bottleneck(
    kind="load-bound",
    columns=("module_load_ns",),
    what="loading GPU code for the first time{place}",
    advice=(f"this is warm-up: capture later steps, or leave these out with --steps {SKIPPED}:"),
)

LATER_ADVICE: Final = (
    "this is warm-up: start the capture later, or look at what comes after it with --from SECONDS"
)
"""Instead of LOADING's, where no steps would be left."""

BOTTLENECKS: Final = (
    HOST,
    LAUNCH,
    Bottleneck(
        kind="sync-bound",
        columns=("sync_ns",),
        what="waiting in {call}{place}",
        advice="drop or delay the wait{there} (.item(), .cpu(), `if tensor`, synchronize())",
    ),
    COPIES,
    Bottleneck(
        kind="allocation-bound",
        columns=("alloc_ns",),
        what="allocating or freeing memory with {call}{place}",
        advice="allocate once and reuse: static buffers, the caching allocator, no empty_cache()",
    ),
    LOADING,
    Bottleneck(
        kind="bound by other CUDA calls",
        columns=("api_ns",),
        what="CUDA calls that neither launch nor wait, mostly {call}{place}",
        advice="make them once, outside the step",
    ),
    COMMUNICATION,
    Bottleneck(
        kind="dependency-bound",
        columns=("dependency_ns",),
        what="queued work waiting for another stream, event or GPU{place}",
        advice="see which stream waits for which around the longest gaps: --table gaps",
    ),
    Bottleneck(
        kind="profiler-bound",
        columns=("profiler_ns",),
        what="the profiler's own work",
        advice="the profiler distorts these times; trace less, e.g. --trace cuda,nvtx",
    ),
    Bottleneck(
        kind="unexplained",
        columns=("unknown_ns",),
        what="work whose launch is not in the report",
        advice="record the launches too: nsys profile --trace cuda,nvtx",
    ),
)
"""Every cause of idle time and every exposed part is in exactly one of these."""
