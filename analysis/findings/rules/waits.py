"""Waits for the GPU, for the driver and of one stream for another.

* `sync-in-loop` and `scalar-readback`: the host waits for the GPU in every step. While it waits it
  launches nothing. When the GPU is done it idles until the host has launched again. `.item()`,
  `if tensor`, `print(tensor)` and `.cpu()` wait as synchronize() does.
* `anomaly-detection`: autograd looks for NaN, as torch.autograd.set_detect_anomaly(True) asks. In
  the forward pass each operator writes down the stack that called it. In the backward pass each
  gradient is compared with itself, and the host waits for the answer.
* `dependency-wait`: a stream waits for another one, or for what the report does not name, and the
  GPU has nothing else to do.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.producers import STREAM_WAIT
from nsysflow.analysis.findings.backward import BACKWARD
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import LEAST_PCT, stacks_with
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernels import OPTIMIZER
from nsysflow.analysis.findings.launches import itself
from nsysflow.analysis.findings.stall_findings import Stalls, What, stalls_of
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number, percent

READ_BACK: Final = (
    "read it some steps later, or keep it on the GPU: torch.where or a mask instead of `if tensor`",
    "gather the tensors and call .item() once every 100 steps",
    "copy it to pinned memory with non_blocking=True, and read it when its event is done",
)
AT_ONCE: Final = (
    "read all values at once: torch.stack(values).tolist(); clip_grad_norm_ returns the norm of all"
)
REPEATS: Final = (
    "repeat_interleave(…, output_size=n): it need not ask for the size that the host can know",
    "one repeat_interleave for the whole batch instead of a loop",
)
STEP_COUNTS: Final = (
    "the optimizer reads its step counts from the GPU: Adam(…, fused=True) or capturable=True does"
    " not",
    "or keep the step counts on the CPU: no torch.set_default_device('cuda') where the optimizer is"
    " made, and torch.load(…, map_location='cpu') for its state",
)
OF_GRADIENTS: Final = (
    "the gradients of torch.prod and torch.cumprod read whether there are zeros: where all numbers"
    " are positive, exp(cumsum(log(x))) reads nothing",
)
WAIT: Final = (
    "remove the wait: synchronize(), .item(), .cpu(), `if tensor` and print(tensor) all wait",
    "keep the value on the GPU, or read it some steps later",
    "time with CUDA events instead of synchronize()",
)

VALIDATES: Final = r"torch/distributions/distribution\.py (?:__init__|_validate_sample)$"
"""Where torch.distributions compares its arguments on the GPU, and waits for the answer."""

KEEPS_COUNTS: Final = r"torch/optim/(?:[nr]?adamw?|adamax|asgd|adagrad|sparse_adam)\.py "
"""PyTorch's optimizers that compute with the number of their steps."""

CHANGE_OF_CHECKS: Final = (
    "torch.distributions checks its arguments there: validate_args=False, or for all of them"
    " torch.distributions.Distribution.set_default_validate_args(False)"
)
COMPARISONS_TOO: Final = "the comparisons and their launches go, too: it saves more than the wait"

FREQUENT: Final = 10
"""What stands in fewer than one of so many steps takes over nothing in the others: a loss that is
printed now and then."""

ALL: Final = {2: "both", 3: "all three", 4: "all four", 5: "all five"}
"""How one says that so many go together."""


def waits(subject: JudgedReport) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits for the GPU, and those
    of many steps together, since one may take over from another. Where the host reads managed
    memory, it needs its syncs: nothing else says that what it reads is ready."""
    reads_managed = (subject.view.copies["direction"] == "UVM DtoH").any()
    removable: tuple[What, ...] = ("read",) if reads_managed else ("read", "sync")
    for stalls in stalls_of(subject, *removable):
        reads = stalls.what == "read"
        if reads and (anomaly := anomaly_detection(subject, stalls)):
            yield anomaly
            continue
        what = "value read back in the loop" if reads else "sync in the loop"
        finding = stalls.finding(
            subject,
            rule="scalar-readback" if reads else "sync-in-loop",
            what=f"{what}{stalls.many(subject)}",
            change=_reading(subject, stalls) if reads else WAIT,
        )
        checks = reads and _mostly_in(subject, stalls, VALIDATES)
        yield _of_checks(finding) if checks else finding
    every = stalls_of(subject, *removable, "fetch", "pageable", "pinned")
    frequent = [stalls for stalls in every if FREQUENT * stalls.steps >= subject.steps]
    if len(frequent) > 1:
        yield _taking_turns(subject, frequent)


def _reading(subject: JudgedReport, stalls: Stalls) -> tuple[str, ...]:
    """What to change where values are read back."""
    if stalls.repeats:
        return REPEATS
    if _reads_step_counts(subject, stalls):
        return STEP_COUNTS
    if re.search(BACKWARD, stalls.phase) and not stalls.line:
        return (*OF_GRADIENTS, *READ_BACK)
    return (AT_ONCE, *READ_BACK) if stalls.loop_kernels is not None else READ_BACK


def _reads_step_counts(subject: JudgedReport, stalls: Stalls) -> bool:
    """Whether an optimizer of PyTorch reads there how many steps it has made: once or twice for
    each parameter."""
    if not re.search(OPTIMIZER, stalls.phase) or not stalls.many(subject):
        return False
    return not stalls.line or _mostly_in(subject, stalls, KEEPS_COUNTS)


def _mostly_in(subject: JudgedReport, stalls: Stalls, files: str) -> bool:
    """Whether most stacks with this line, at a call where there are some, have a frame whose file
    and function match."""
    timeline = subject.timeline
    of_line = timeline.events.stack_sources.filter(
        pl.col("source").cast(pl.String) == stalls.source
    )
    at_calls = timeline.trace.backtraces["stack"]
    stacks = of_line["stack"].filter(of_line["stack"].is_in(at_calls.implode()))
    stacks = of_line["stack"] if stacks.is_empty() else stacks
    inside = stacks.is_in(stacks_with(subject, files).implode())
    return 2 * int(inside.sum()) > len(stacks)


def _of_checks(finding: Finding) -> Finding:
    """The finding of a read-back that checks arguments."""
    return replace(
        finding,
        change=(CHANGE_OF_CHECKS, *READ_BACK[:1]),
        evidence=(*finding.evidence, COMPARISONS_TOO),
        exact=False,
        saves_more=True,
    )


def _taking_turns(subject: JudgedReport, every: list[Stalls]) -> Finding:
    """All waits at once, where each takes over when another one is removed. They stand at several
    places: a NeRF's seven stood before its TF32, one line, which a plain run showed to save 14.4 ms
    of 44.9, and three of the seven 7.8 (H200, 2026-11-30)."""
    idle_ns = sum(stalls.idle_ns for stalls in every)
    blocked_ns = sum(stalls.blocked_ns for stalls in every)
    places = sorted(every, key=lambda stalls: -stalls.blocked_ns)
    names = ", ".join(place.line or place.phase or "outside any range" for place in places[:4])
    names += f" and {len(places) - 4} more" if len(places) > 4 else ""
    counts = any(one.what == "read" and _reads_step_counts(subject, one) for one in places)
    return Finding(
        rule="sync-in-loop",
        title=f"{len(every)} waits hide each other: remove {ALL.get(len(every), 'all')}",
        change=("remove them together: " + names, *(STEP_COUNTS if counts else ()), *WAIT),
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
        takes="lines",
        phase=places[0].phase,
        source=places[0].source,
        via=places[0].via,
        culprit=places[0].api,
    )


WRITES_STACK: Final = r"(?:^|/)torch/fx/traceback\.py format_stack$"
"""Called by anomaly detection for each operator (torch/csrc/autograd/python_anomaly_mode.cpp), and
by torch.compile while it compiles."""

CHANGE_OF_ANOMALY_DETECTION: Final = (
    "no torch.autograd.set_detect_anomaly(True), and no torch.autograd.detect_anomaly() around it",
    "turn it on for the one step in which a NaN appears: look at the loss every 100 steps",
)


def anomaly_detection(subject: JudgedReport, stalls: Stalls) -> Finding | None:
    """The reads of one place, if anomaly detection asks for them: in backward, in a loop of no line
    of the program, while operators write down their stacks elsewhere. None if it does not."""
    if stalls.source or stalls.loop_kernels is None or not re.search(BACKWARD, stalls.phase):
        return None
    written = dict(_shares_of_stacks(subject))
    if not written:
        return None
    found = stalls.finding(
        subject,
        rule="anomaly-detection",
        what=f"autograd looks for NaN in each gradient{stalls.many(subject)}",
        change=CHANGE_OF_ANOMALY_DETECTION,
    )
    faster = Changes(
        faster_host=tuple((itself(subject, phase), 1 - part) for phase, part in written.items())
    )
    where = ", ".join(f"{percent(100 * part)} in {phase}" for phase, part in written.items())
    return replace(
        found,
        evidence=(
            *found.evidence,
            "operators write down the stack that called them:"
            f" {where} of the host code that the GPU waits for",
        ),
        changes=Changes.together([faster, *([found.changes] if found.changes else [])]),
        ends=("only the waits go", "the checks and the stacks go, too"),
    )


def _shares_of_stacks(subject: JudgedReport) -> Iterator[tuple[str, float]]:
    """Each phase in which operators write down stacks, with the share that this takes of the host
    code for which the GPU waits there; by time, most first. It takes as much of that as a function
    that is named, and of all the time in which stacks are written down."""
    stacks = subject.view.host_stacks
    if stacks is None:
        return
    writing = stacks_with(subject, WRITES_STACK)
    spent = stacks.filter(pl.col("stack").is_not_null(), pl.col("phase") != "").select(
        pl.col("phase").cast(pl.String), "idle_ns", writes=pl.col("stack").is_in(writing.implode())
    )
    sums = spent.group_by("phase").agg(
        pl.col("idle_ns").sum().alias("whole_ns"),
        pl.col("idle_ns").filter("writes").sum().alias("writing_ns"),
    )
    writing_ns = pl.col("writing_ns")
    least_ns = LEAST_PCT / 100 * pl.max_horizontal("whole_ns", writing_ns.sum())
    worth = sums.filter(writing_ns > 0, writing_ns >= least_ns)
    part = (writing_ns / pl.col("whole_ns")).alias("part")
    yield from worth.sort(-writing_ns, "phase").select("phase", part).iter_rows()


CHANGE_OF_DEPENDENCY: Final = (
    "record the event right after the work that is needed, not after all that follows",
    "wait as late as possible: right before the first kernel that needs it (stream.wait_event)",
    "give the waiting stream other work meanwhile, or put both on one stream",
)


CHANGE_OF_UNKNOWN_WAIT: Final = (
    "see what else uses this GPU: other processes (nvidia-smi), ranks that are not in this report",
    "record with nsysflow profile: nsys says for which event a stream waits",
    "let streams wait for each other as late as possible: wait_stream, wait_event",
)
CHANGE_OF_LATE_START: Final = (
    "see what else uses this GPU: other processes (nvidia-smi), ranks that are not in this report",
    "on Windows and WSL2 the driver collects launches before it starts them: make fewer of them",
    "launch the next kernel before this one has ended: pauses that stay are the driver's or the"
    " GPU's, and no launch's",
)
"""Where no stream is told to wait."""


def dependency_wait(subject: JudgedReport) -> Iterator[Finding]:
    """Each phase in which the GPU idles although the next operation was launched long before."""
    rows = subject.tables.gap_summary.filter(pl.col("cause") == "dependency")
    for (phase,), here in sorted(rows.group_by("phase"), key=lambda group: str(group[0])):
        yield _dependency(subject, str(phase), here)


def _dependency(subject: JudgedReport, phase: str, rows: pl.DataFrame) -> Finding:
    idle_ns = subject.worst_ns(rows, "total_ns")
    first: dict[str, Any] = rows.sort("total_ns", "culprit").row(-1, named=True)
    source, via = first["source"] or "", first["via"] or ""
    calls = subject.timeline.events.calls["name"].unique().cast(pl.String)
    change: tuple[str, ...] = CHANGE_OF_UNKNOWN_WAIT
    what = "the GPU waits for work that the report does not name"
    if not calls.str.contains(STREAM_WAIT).any():
        change = CHANGE_OF_LATE_START
        what = "the GPU starts late what was launched, and why is not recorded"
    if first["culprit"]:
        what, change = f"a stream waits for {first['culprit']}", CHANGE_OF_DEPENDENCY
    return Finding(
        rule="dependency-wait",
        title=f"{what}{place(phase, line(source, via))}",
        change=change,
        evidence=(
            f"{subject.idle(idle_ns)}, in {number(int(rows['gaps'].sum()))}"
            " gaps whose next operation was launched long before",
        ),
        table="gap_summary",
        size_ns=idle_ns,
        steps=subject.steps,
        at_most_ns=idle_ns,
        phase=phase,
        source=source,
        via=via,
        culprit=first["culprit"],
    )
