"""`sync-in-loop` and `scalar-readback`: the host waits for the GPU in every step.

While the host waits it launches nothing. When the GPU is done it idles until the host has launched
again. `.item()`, `if tensor`, `print(tensor)` and `.cpu()` wait as synchronize() does.
"""

from collections.abc import Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.stall_findings import Stalls, stalls_of
from nsysflow.analysis.replay.changes import Changes

READ_BACK: Final = (
    "read it some steps later, or keep it on the GPU: torch.where or a mask instead of `if tensor`",
    "gather the tensors and call .item() once every 100 steps",
    "copy it to pinned memory with non_blocking=True, and read it when its event is done",
)
AT_ONCE: Final = (
    "read all values at once: torch.stack(values).tolist(); clip_grad_norm_ returns the norm of all"
)
WAIT: Final = (
    "remove the wait: synchronize(), .item(), .cpu(), `if tensor` and print(tensor) all wait",
    "keep the value on the GPU, or read it some steps later",
    "time with CUDA events instead of synchronize()",
)

ALL: Final = {2: "both", 3: "all three", 4: "all four", 5: "all five"}
"""How one says that so many go together."""


def waits(subject: JudgedReport) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits for the GPU."""
    for stalls in stalls_of(subject, "read", "sync"):
        reads = stalls.what == "read"
        in_loop = stalls.loop_kernels is not None
        what = "value read back in the loop" if reads else "sync in the loop"
        yield stalls.finding(
            subject,
            rule="scalar-readback" if reads else "sync-in-loop",
            what=f"{what}{stalls.many(subject)}",
            change=(AT_ONCE,) * in_loop + READ_BACK if reads else WAIT,
        )
    every = list(stalls_of(subject, "read", "sync", "fetch", "pageable", "pinned"))
    if len(every) > 1:
        yield _taking_turns(subject, every)


def _taking_turns(subject: JudgedReport, every: list[Stalls]) -> Finding:
    """All waits at once, where each takes over when another one is removed."""
    idle_ns = sum(stalls.idle_ns for stalls in every)
    blocked_ns = sum(stalls.blocked_ns for stalls in every)
    places = sorted(every, key=lambda stalls: -stalls.blocked_ns)
    names = ", ".join(place.line or place.phase or "outside any range" for place in places[:4])
    return Finding(
        rule="sync-in-loop",
        title=f"{len(every)} waits hide each other: remove {ALL.get(len(every), 'all')}",
        change=("remove them together: " + names, *WAIT),
        evidence=(
            "remove one alone, and the GPU waits in the next one instead",
            f"they block the host for {subject.spent(blocked_ns)} and cost {subject.idle(idle_ns)}",
        ),
        table="syncs",
        size_ns=max(stalls.size_ns for stalls in every),
        steps=max(stalls.steps for stalls in every),
        changes=Changes(removed=tuple(removal for stalls in every for removal in stalls.removals)),
        worth_ns=sum(stalls.worth_ns(subject) for stalls in every),
        waits=True,
        joint=True,
        phase=places[0].phase,
        source=places[0].source,
        via=places[0].via,
        culprit=places[0].api,
    )
