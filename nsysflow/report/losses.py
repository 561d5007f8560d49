"""Why GPUs lose time, as the verdict words it: one row a reason, with what to do about it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One reason for which GPUs lose time.

    Attributes:
        kind: the verdict's word for a program that loses most of its time so.
        columns: the columns of accounting that add up to it.
        because: what happened; `{call}` is the dearest CUDA call, `{place}` where the host was,
            `{rank}` who is waited for.
        advice: what to do next; `{there}` is the place, or `there` where it is not one place.
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
    advice="see what Python does {there}; do it less often, later, or in another thread",
)

SCATTERED_ADVICE: Final = (
    "see what Python does between the launches; do it less often or later, or launch a whole step"
    " as one CUDA graph"
)
"""Instead of HOST's, where no one place has half of it."""

LAUNCH: Final = Loss(
    kind="launch-bound",
    columns=("launch_ns", "dispatch_ns"),
    because="launch overhead{place}",
    advice="launch less {there}: torch.compile, a CUDA graph, fused or larger kernels",
)

GRAPHED_ADVICE: Final = "replay less {there}: more work in each CUDA graph, fused or larger kernels"
"""Instead of LAUNCH's, where the launches are of graphs already."""

COMMUNICATION: Final = Loss(
    kind="communication-bound",
    columns=("comm_exposed_ns",),
    because="communication that no compute hides",
    advice="overlap it with compute (buckets, another stream) or send less: --table comm",
)

WAITING: Final = Loss(
    kind=COMMUNICATION.kind,
    columns=COMMUNICATION.columns,
    because="waiting in collectives for {rank}",
    advice="see why {rank} comes late (its data, its host, its share of the work): --table ranks",
)
"""Instead of COMMUNICATION, where most of a rank's collectives is waiting for another rank."""

LOSSES: Final = (
    HOST,
    LAUNCH,
    Loss(
        kind="sync-bound",
        columns=("sync_ns",),
        because="the host waiting in {call}{place}",
        advice="drop or delay the wait {there}: .item(), .cpu(), `if tensor`, synchronize()",
    ),
    Loss(
        kind="copy-bound",
        columns=("blocking_copy_ns", "copy_exposed_ns"),
        because="copies that nothing hides{place}",
        advice=(
            "hide the copies {there}: pinned memory, non_blocking=True, another stream, ahead of"
            " use or read later: --table copies"
        ),
    ),
    Loss(
        kind="allocation-bound",
        columns=("alloc_ns",),
        because="memory allocated or freed by {call}{place}",
        advice="allocate once and reuse: static buffers, the caching allocator, no empty_cache()",
    ),
    Loss(
        kind="load-bound",
        columns=("module_load_ns",),
        because="GPU code loaded for the first time{place}",
        advice="this is warm-up: capture later steps, or leave these out with --steps 2:",
    ),
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
