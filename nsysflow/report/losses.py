"""Why GPUs lose time, as the verdict words it: one row a reason, with what to do about it."""

from dataclasses import dataclass, replace
from typing import Final

from nsysflow.analysis.phases.steps import SKIPPED_BY_DEFAULT


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One reason for which GPUs lose time.

    Attributes:
        kind: the verdict's word for a program that loses most of its time so.
        columns: the columns of accounting that add up to it.
        because: what happened; `{call}` is the dearest CUDA call, `{place}` follows on it and says
            where, `{rank}` is who is waited for.
        advice: what to do next; `{there}` follows on what is to be changed and says where.
    """

    kind: str
    columns: tuple[str, ...]
    because: str
    advice: str

    @property
    def causes(self) -> list[str]:
        """The causes of gaps among the columns."""
        return [each.removesuffix("_ns") for each in self.columns if "exposed" not in each]


HOST: Final = Loss(
    kind="host-bound",
    columns=("host_ns",),
    because="host code{place}",
    advice="see what Python does{there}; do it less often, later, or in another thread",
)

SCATTERED_ADVICE: Final = (
    "see what Python does between the launches; do it less often or later, or launch a whole step"
    " as one CUDA graph"
)
"""Instead of HOST's, where no one place has half of it."""

EAGER_ADVICE: Final = (
    "launch less often from Python{there}: torch.compile or a CUDA graph; this host code is many"
    " short pauses between launches"
)
"""Instead of HOST's, where it is what an eager framework takes from one operator to the next."""

OUTSIDE_ADVICE: Final = {
    True: (
        "put NVTX ranges around what runs between the steps (data loading, logging, …) to name it"
    ),
    False: "look at the steps alone (--steps 0:), or put NVTX ranges around the rest to name it",
    None: "put NVTX ranges around the parts of the program (data, forward, logging, …) to name it",
}
"""Instead of HOST's, where no range was open: in the time of the steps, before or after them, or
where there are none."""

START_UP_ADVICE: Final = "look at the steps alone, which hold less than half of it: --steps 0:"
"""Instead of any, where most is before or after the steps."""

LAUNCH: Final = Loss(
    kind="launch-bound",
    columns=("launch_ns", "queue_delay_ns"),
    because="launch overhead{place}",
    advice="launch less{there}: torch.compile, a CUDA graph, fused or larger kernels",
)

GRAPHED_ADVICE: Final = "replay less{there}: more work in each CUDA graph, fused or larger kernels"
"""Instead of LAUNCH's, where the launches are of graphs already."""

COMMUNICATION: Final = Loss(
    kind="communication-bound",
    columns=("comm_exposed_ns",),
    because="communication that no compute hides",
    advice="overlap it with compute (buckets, another stream) or send less: --table comm",
)

WAITING: Final = replace(
    COMMUNICATION,
    because="waiting in collectives for {rank}",
    advice="see why {rank} comes late (its data, its host, its share of the work): --table ranks",
)
"""Instead of COMMUNICATION, where most of a rank's collectives is waiting for another rank."""

UNEVEN: Final = replace(
    COMMUNICATION,
    because="waiting in collectives, for one rank and then for another",
    advice="even out what the ranks do between two collectives: --table arrivals",
)
"""Instead of WAITING, where no rank comes twice as late as any other."""

SENDING: Final = replace(
    COMMUNICATION,
    because="sends and receives that no compute hides",
    advice="shorten the pipeline's bubbles (more microbatches, interleaved stages): --table comm",
)
"""Instead of COMMUNICATION, where ranks send to each other, as the stages of a pipeline do."""

COPIES: Final = Loss(
    kind="copy-bound",
    columns=("blocking_copy_ns", "copy_exposed_ns"),
    because="copies that nothing hides{place}",
    advice=(
        "hide the copies{there}: pinned memory, non_blocking=True, another stream, ahead of use or"
        " read later: --table copies"
    ),
)

READ_BACK: Final = replace(
    COPIES,
    because="the host reading a few bytes back by {call}{place}",
    advice="drop the read{there}, or do it some steps later: .item(), .cpu(), `if tensor`",
)
"""Instead of COPIES, where what is waited for is a value: no pinned memory makes that shorter."""

ON_GPU: Final = replace(
    COPIES,
    because="copies within the GPU that nothing hides{place}",
    advice="move less{there}: write in place, without cat, clone or contiguous: --table copies",
)
"""Instead of COPIES, where the data stay on the GPU: there is nothing to pin."""

PEERS: Final = replace(
    COPIES,
    because="copies between GPUs that nothing hides{place}",
    advice="overlap them with compute{there} on another stream, or send less: --table copies",
)
"""Instead of COPIES, where no host memory has a part in them."""

CLEARING: Final = replace(
    COPIES,
    because="memory being set, which nothing hides{place}",
    advice="clear less{there}: zero_grad(set_to_none=True), torch.empty for what is written anyway",
)
"""Instead of COPIES, where most is memsets, which the table of copies does not hold."""

LOADING: Final = Loss(
    kind="load-bound",
    columns=("module_load_ns",),
    because="GPU code loaded for the first time{place}",
    advice=(
        "this is warm-up: capture later steps, or leave these out with"
        f" --steps {SKIPPED_BY_DEFAULT}:"
    ),
)

LATER_ADVICE: Final = (
    "this is warm-up: begin the capture later, or look at what comes after it: --from SECONDS"
)
"""Instead of LOADING's, where no steps would be left."""

LOSSES: Final = (
    HOST,
    LAUNCH,
    Loss(
        kind="sync-bound",
        columns=("sync_ns",),
        because="the host waiting in {call}{place}",
        advice="drop or delay the wait{there}: .item(), .cpu(), `if tensor`, synchronize()",
    ),
    COPIES,
    Loss(
        kind="allocation-bound",
        columns=("alloc_ns",),
        because="memory allocated or freed by {call}{place}",
        advice="allocate once and reuse: static buffers, the caching allocator, no empty_cache()",
    ),
    LOADING,
    Loss(
        kind="bound by other CUDA calls",
        columns=("api_ns",),
        because="CUDA calls that neither launch nor wait{place}, {call} before all",
        advice="make them once, outside the step",
    ),
    COMMUNICATION,
    Loss(
        kind="dependency-bound",
        columns=("dependency_ns",),
        because="queued work waiting for another stream, event or GPU{place}",
        advice="see which stream waits for which around the longest gaps: --table gaps",
    ),
    Loss(
        kind="profiler-bound",
        columns=("profiler_ns",),
        because="the profiler's own work",
        advice="these times are not the program's own: trace less, e.g. --trace cuda,nvtx",
    ),
    Loss(
        kind="unexplained",
        columns=("unknown_ns",),
        because="work whose launch is not in the report",
        advice="capture the launches too: nsys profile --trace cuda,nvtx",
    ),
)
"""Every cause of idle and every exposed part is in exactly one of these."""
