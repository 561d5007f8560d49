"""The lines and phases at which the host waits, and the findings that say to wait no more.

`host-round-trip`: a function that waits for the GPU or copies, and then computes on the host. A
metric in numpy, boxes sorted in Python, a batch stacked and copied: rules see the wait, the copy
and the code apart. Who moves the function's work to the GPU is rid of all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import polars as pl

from nsysflow.analysis.findings.finding import Finding, in_function, line, place, without_function
from nsysflow.analysis.findings.host_functions import (
    CHANGES_OF_WAIT,
    code_of,
    is_loop,
    launch_share,
)
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import host_of_launches, itself, without_launches
from nsysflow.analysis.findings.launching_lines import neighbours
from nsysflow.analysis.findings.repeated import backward_of
from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.replay.apply import ITSELF
from nsysflow.analysis.replay.changes import LOOP, Changes, Removal
from nsysflow.analysis.replay.read_loops import FEWEST_READS, acting_calls, read_loops
from nsysflow.base.names import OUTSIDE, SourceLine
from nsysflow.base.units import number

What = Literal["read", "fetch", "pageable", "pinned", "sync", "alloc", "retry"]
"""What a call does: reads a value back, copies more than that to pageable memory, copies from
pageable memory, waits for a copy of pinned memory, waits for something else, takes and gives
memory, or is part of a retry of the allocator."""

HIDDEN: Final = 0.1
"""This share of the time that a wait blocks the host may be lost without idle time behind it:
copies and other streams that it keeps from overlapping. (Of two simulated programs, prefetch-008
and two_streams-037, a wait took 18 and 5 % of the window with under 0.5 % idle behind it.) It only
decides what is replayed."""

HARMLESS: Final = 1 / 30
"""A wait that saves less than this share of the time that it blocks hides behind the GPU's work …
"""

RESUMED_NS: Final = 250_000
"""… if that is no more than the host takes to launch again after any wait: 58 to 214 us in
benign_sync (H200, 2026-11-20), where the GPU computes during 98 % of the wait."""


TAKES_TURNS: Final = 2
"""Waits hide each other if all together save more than twice what they save alone, or one saves
less than half of what is lost there."""

MORE: Final = 1.2
"""A saving that is larger by this than what is lost at its place needs a sentence."""

TAKEN_OVER: Final = (
    "the replay saves less than half of that: another wait takes over, or it hides other work"
)
RUNS_AHEAD: Final = (
    "the replay saves more than that: the host then launches earlier, so that other idle time goes,"
    " too"
)
MAY_STAY: Final = "why the GPU starts late what was launched is not recorded: these pauses may stay"


def compared_with_replay(finding: Finding, saved_ns: int, lost_ns: float) -> Finding:
    """A finding of waits that says why its replay saves less or more than what is lost there: less
    than without the profiler, or more than even the recorded time that its evidence states."""
    if saved_ns < lost_ns / TAKES_TURNS:
        return replace(finding, evidence=(*finding.evidence, TAKEN_OVER))
    if saved_ns > MORE * finding.size_ns:
        return replace(finding, evidence=(*finding.evidence, RUNS_AHEAD))
    return finding


def bounded(finding: Finding, saved_ns: int, lost_ns: float, unnamed_ns: int) -> Finding:
    """A finding of waits whose saving is the most that it can be, where half of it would be idle
    time of a cause that the report does not name: no replay knows whether that goes, too.

    Args:
        finding: the finding.
        saved_ns: what its replay saves.
        lost_ns: the idle time behind the waits.
        unnamed_ns: `unnamed_ns`.
    """
    if 2 * min(saved_ns - lost_ns, unnamed_ns) < saved_ns:
        return finding
    return replace(finding, exact=False, evidence=(*finding.evidence, MAY_STAY))


def unnamed_ns(subject: JudgedReport) -> int:
    """How long a GPU idles per step although work was launched, and nothing says why."""
    late = (pl.col("cause") == "dependency") & (pl.col("culprit").fill_null("") == "")
    return subject.worst_ns(subject.tables.gap_summary.filter(late), "total_ns")


MANY_CALLS: Final = 10
"""So many calls at one place are in its title: such as a norm read back for each parameter."""


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """The stalls of one line of the program and of a framework, or of one phase where no lines are
    known.

    Attributes:
        what: what most of them do.
        phase: a path; empty outside all ranges.
        source: the line, of several that which loses most; empty where none is known.
        via: the framework's line, if `source` only calls that framework; else empty.
        line: its lines in words; empty where none is known.
        api: the call that loses most.
        removals: what makes them vanish.
        calls: how many there are.
        copies: how many of them copy.
        largest_bytes: the most that one of them copies, or waits to be copied.
        steps: how many of the judged steps have them.
        blocked_ns: how long they block the host, per step.
        idle_ns: the idle time behind them, per step.
        process: the OS pid; None where several processes have them.
        at: the place as `nsysflow whatif` takes it.
        loop_kernels: where they stand in loops that only read, how many kernels these launch; else
            None.
        repeats: whether repeat_interleave asks there how long its result is.
    """

    what: What
    phase: str
    source: str
    via: str
    line: str
    api: str
    removals: tuple[Removal, ...]
    calls: int
    copies: int
    largest_bytes: int
    steps: int
    blocked_ns: int
    idle_ns: int
    process: int | None
    at: str
    loop_kernels: int | None
    repeats: bool

    @property
    def size_ns(self) -> int:
        """What may be lost there: decides what is replayed."""
        return max(self.idle_ns, round(HIDDEN * self.blocked_ns))

    def worth_ns(self, subject: JudgedReport) -> int:
        """What removing them must save to be worth a line."""
        resumed_ns = RESUMED_NS * self.calls / subject.steps
        return round(min(HARMLESS * self.blocked_ns, resumed_ns))

    def finding(
        self, subject: JudgedReport, *, rule: str, what: str, change: tuple[str, ...]
    ) -> Finding:
        """The finding that says to remove them; where they stand in loops, at most these go."""
        alone = Changes(removed=self.removals)
        in_loop = self.loop_kernels is not None
        return Finding(
            rule=rule,
            title=f"{what}: {self.api}{place(self.phase, self.line)}",
            change=change,
            evidence=(
                f"{self._often(subject)} the host for {subject.spent(self.blocked_ns)}",
                f"they cost {subject.idle(self.idle_ns)}",
            ),
            table="syncs",
            size_ns=self.size_ns,
            steps=self.steps,
            changes=Changes(removed=(Removal(kind=LOOP, at=self.at),)) if in_loop else alone,
            sure=alone if in_loop else None,
            ends=("only the waits go", self._besides(subject)) if in_loop else None,
            worth_ns=self.worth_ns(subject),
            waits=True,
            process=self.process,
            phase=self.phase,
            source=self.source,
            via=self.via,
            culprit=self.api,
        )

    def _besides(self, subject: JudgedReport) -> str:
        """What else goes where their loop goes."""
        kernels = subject.per_step(self.loop_kernels or 0)
        if not kernels:
            return "the code between them goes, too"
        launched = "kernel" if kernels == 1 else f"{number(kernels)} kernels"
        return f"the {launched} and the code between them go, too"

    def many(self, subject: JudgedReport) -> str:
        """`, 203 times a step`, where they are that many; else empty. A copy and the wait for it
        are once."""
        times = round((self.copies or self.calls) / subject.steps)
        return f", {number(times)} times{subject.a_step}" if times >= MANY_CALLS else ""

    def _often(self, subject: JudgedReport) -> str:
        """`2 calls a step block`; `3 calls in 10 steps block` where not every step has one."""
        calls = self.calls / subject.steps
        if not subject.of_steps or calls < 1:
            within = f" in {number(subject.steps)} steps" if subject.of_steps else ""
            return (
                f"one call{within} blocks"
                if self.calls == 1
                else (f"{number(self.calls)} calls{within} block")
            )
        return "one call a step blocks" if calls < 1.5 else f"{calls:.0f} calls a step block"


def stalls_of(subject: JudgedReport, *wanted: What) -> Iterator[Stalls]:
    """The places whose stalls mostly do one of the things wanted; allocations and retries are
    places of their own."""
    places = kept_with(subject, "places of stalls", lambda: places_of(subject, subject.stalls))
    yield from (place for place in places if place.what in wanted)


def places_of(subject: JudgedReport, rows: pl.DataFrame) -> tuple[Stalls, ...]:
    """The stalls of each place, in the order of their rows.

    Args:
        subject: the judged part.
        rows: of its stalls.
    """
    phases = rows["phase"].unique().to_list()
    what = pl.col("what")
    key = ["source", "via", "at_phase", what == "alloc", (what == "retry").alias("retry")]
    places = []
    for _, group in rows.group_by(key, maintain_order=True):
        most = group.group_by("what").agg(_loss().sum()).sort("loss", "what")["what"][-1]
        places.append(_stalls(subject, group, most, phases))
    return tuple(places)


_KINDS: Final = {"sync": "sync", "blocking_copy": "copy", "alloc": "alloc"}
"""Classes of calls, as a replay removes them."""


def _stalls(subject: JudgedReport, rows: pl.DataFrame, what: What, phases: list[str]) -> Stalls:
    first: dict[str, Any] = (
        rows.group_by("phase", "api").agg(_loss().sum()).sort("loss", "phase", "api")
    ).row(-1, named=True)
    source, via, phase = str(rows["source"][0]), str(rows["via"][0]), str(first["phase"])
    at = without_function(line(source, via)) or _alone(phase, phases)
    return Stalls(
        what=what,
        phase=phase,
        source=source,
        via=via,
        line=line(source, via),
        api=first["api"],
        removals=tuple(Removal(kind=_KINDS[kind], at=at) for kind in sorted(rows["kind"].unique())),
        calls=len(rows),
        copies=int((rows["kind"] == "blocking_copy").sum()),
        largest_bytes=greatest(rows["bytes"]),
        steps=subject.steps_with(rows["start_ns"]),
        blocked_ns=subject.per_step(int(rows["blocked_ns"].sum())),
        idle_ns=subject.per_step(int(rows["idle_ns"].sum())),
        process=subject.process_of(rows),
        at=at,
        loop_kernels=_loop_kernels(subject, rows) if what in ("read", "sync") else None,
        repeats=what == "read" and _repeats(subject, rows["call"]),
    )


REPEAT_INTERLEAVE: Final = "compute_cuda_kernel"
"""The kernel of PyTorch's repeat_interleave: ATen/native/cuda/Repeat.cu."""

READS_OF_REPEAT: Final = 3
"""Without `output_size` it reads twice before this kernel: whether all counts are positive, and
their sum. So it launches the kernel right behind every second read, if all are its own."""


def _repeats(subject: JudgedReport, calls: pl.Series) -> bool:
    """Whether the kernel of repeat_interleave comes right behind at least a third of the reads."""
    launched = kept_with(subject, "kernels by call", lambda: _kernels_by_call(subject))
    if not (launched["short_name"] == REPEAT_INTERLEAVE).any():
        return False
    reads = calls.sort().alias("call").to_frame()
    behind = reads.join_asof(launched, on="call", strategy="forward")["short_name"]
    return READS_OF_REPEAT * int((behind == REPEAT_INTERLEAVE).sum()) >= len(reads)


def _kernels_by_call(subject: JudgedReport) -> pl.DataFrame:
    """`call` and `short_name` of the judged kernels, in the order of their launches."""
    kernels = subject.view.ops.filter(pl.col("kind") == "kernel", pl.col("call").is_not_null())
    return kernels.select("call", "short_name").sort("call")


MOST_OF_KERNELS: Final = 0.5
"""Loops that only read have at most half of all kernel time: two real ones had 16 and 9 %. Others
are the program itself, which cannot go."""


def _loop_kernels(subject: JudgedReport, rows: pl.DataFrame) -> int | None:
    """How many kernels the loops launch that these stalls stand in; None if they stand in none."""
    if len(rows) < FEWEST_READS * subject.steps_with(rows["start_ns"]):
        return None
    timeline = subject.timeline
    classes = timeline.options.kernel_classes
    acting = kept_with(subject, "acting calls", lambda: acting_calls(timeline.events, classes))
    loops = read_loops(acting, rows["call"])
    compute_ns = int(subject.tables.accounting["compute_ns"].sum())
    if loops.is_empty() or loops["kernel_ns"].sum() > MOST_OF_KERNELS * compute_ns:
        return None
    return int(loops["kernels"].sum())


def _alone(phase: str, phases: list[str]) -> str:
    """The phase as changes name it, without the stalls in phases inside it."""
    if not phase:
        return OUTSIDE
    return phase + ITSELF if any(other.startswith(f"{phase}/") for other in phases) else phase


def _loss() -> pl.Expr:
    return (pl.col("idle_ns") + HIDDEN * pl.col("blocked_ns")).alias("loss")


HOST_ROUND_TRIP: Final = "host-round-trip"

_HOST: Final = ("data-loading", "host-code")
_STALLS: Final = ("sync-in-loop", "scalar-readback", "pageable-copy", "blocking-pinned-copy")

ON_THE_GPU: Final = "do its work on the GPU, where the data is, and copy only the result"
ALL_AT_ONCE: Final = (
    "one call for all instead of a loop, such as torch._foreach_norm or torchvision.ops.batched_nms"
)
MOST_OF_LAUNCHES: Final = 0.5
"""A loop that makes fewer of a phase's launches does not stand for them."""

RARELY: Final = "do it less often, or some steps later, or on another thread"


def with_round_trips(subject: JudgedReport, found: Iterable[Finding]) -> list[Finding]:
    """The findings, with those of one function's waits, copies and host code as one."""
    left = [*found]
    for function in _functions(left):
        places = [
            stalls
            for stalls in stalls_of(subject, "read", "sync", "fetch", "pageable", "pinned")
            if in_function(stalls.source) == function
        ]
        if not places or is_loop(subject, function):
            continue
        sure = Changes(removed=tuple(removal for one in places for removal in one.removals))
        parts = [one for one in left if _is_part(one, function, sure)]
        left = [one for one in left if one not in parts]
        left.append(_round_trip(subject, places, parts, sure))
    return left


def _functions(found: Sequence[Finding]) -> Iterator[str]:
    """The functions whose own code holds the GPU up, each once. Code in a phase that loads data is
    a loader's."""
    computing = (one for one in found if one.rule in _HOST and one.change not in CHANGES_OF_WAIT)
    named = (in_function(one.source) for one in computing if " in " in one.source)
    loaders = {in_function(one.source) for one in found if one.rule == "data-loading" and one.phase}
    yield from dict.fromkeys(name for name in named if name not in loaders)


def _is_part(one: Finding, function: str, sure: Changes) -> bool:
    """Whether a finding is of this function alone."""
    if one.joint:
        return one.changes is not None and {*one.changes.removed} <= {*sure.removed}
    return one.rule in (*_HOST, *_STALLS) and in_function(one.source) == function


def _round_trip(
    subject: JudgedReport, places: Sequence[Stalls], parts: Sequence[Finding], sure: Changes
) -> Finding:
    """One finding instead of the parts: it saves what the waits do, and at most all of it."""
    blocked_ns, idle_ns = sum(one.blocked_ns for one in places), sum(one.idle_ns for one in places)
    single = [one for one in parts if not one.joint]
    code = [one for one in single if one.rule in _HOST]
    most, code_ns = max(code, key=lambda one: one.size_ns), sum(one.size_ns for one in code)
    waits = [one for one in places if one.what in ("read", "sync")]
    calls = round(sum(one.calls for one in waits) / subject.steps)
    many = calls >= MANY_CALLS
    counted = f"{number(calls)} waits{subject.a_step}" if many else "waits"
    kinds = [*([counted] if waits else []), *(["copies"] if len(waits) < len(places) else [])]
    at_once = _launched_at_once(subject, most, calls) if many else Changes()
    bound = at_once == Changes() and all(one.rule == "host-code" for one in code)
    return Finding(
        rule=HOST_ROUND_TRIP,
        title=f"{', '.join(kinds)} and host code in {code_of(most.source)} hold the GPU up",
        change=(ALL_AT_ONCE,) * many
        + (_change(single) if len(waits) == len(places) else (ON_THE_GPU, RARELY)),
        evidence=(
            f"its {'waits' if waits else 'copies'} block the host for {subject.spent(blocked_ns)}"
            f" and cost {subject.idle(idle_ns)}",
            *(text for one in single if one.table == "copies" for text in one.evidence),
            *(text for one in code for text in one.evidence[:-1]),  # the last is of its own saving
        ),
        table="host_stacks",
        size_ns=idle_ns + code_ns,
        steps=max(one.steps for one in single),
        changes=Changes.together([sure, *(one.changes for one in single if one.changes), at_once]),
        sure=sure,
        ends=("only the waits go", "all that it does goes"),
        at_most_ns=blocked_ns + code_ns if bound else 0,
        process=most.process,
        phase=most.phase,
        source=most.source,
        via=most.via,
    )


def _launched_at_once(subject: JudgedReport, code: Finding, passes: int) -> Changes:
    """The phase of a finding as one graph, and the backward pass with so many passes without its
    launches; no change if the function makes less than half of the launches in its phase."""
    launching = subject.view.launching
    phases = subject.view.attribution.name_of(launching["node"]).cast(pl.String).fill_null("")
    calls = launching["call"].filter(phases == code.phase)
    if launch_share(subject, in_function(code.source), calls) < MOST_OF_LAUNCHES:
        return Changes()
    backward = host_of_launches(subject, backward_of(subject, passes)["op"])
    graph = Changes(graphs=(itself(subject, code.phase or OUTSIDE),))
    return Changes.together([graph, without_launches(subject, backward)])


def _change(parts: Sequence[Finding]) -> tuple[str, ...]:
    """What to do where nothing large is copied: first what helps against the largest wait."""
    waits = (one for one in parts if one.rule in _STALLS)
    largest = max(waits, key=lambda one: one.size_ns, default=None)
    return (*largest.change, RARELY) if largest else (RARELY, ON_THE_GPU)


def with_neighbours(places: Sequence[Stalls]) -> list[list[Stalls]]:
    """The places, in order. Those of neighbouring lines of a function that are called in one phase
    are one item."""
    lines = pl.DataFrame(
        {"source": [one.source for one in places], "via": [one.via for one in places]},
        schema={"source": pl.String, "via": pl.String},
    )
    parts = dict(neighbours(lines).select("rank", "part").iter_rows())
    items: dict[tuple[str, int | None, int | None], list[Stalls]] = {}
    for rank, one in enumerate(places):
        part = parts.get(rank)
        items.setdefault((one.phase, part, rank if part is None else None), []).append(one)
    return [*items.values()]


def together(places: Sequence[Stalls]) -> Stalls:
    """Neighbours as one place."""
    if len(places) == 1:
        return places[0]
    most = max(places, key=lambda one: one.size_ns)
    lines = [at for at in map(SourceLine.of, (one.source for one in places)) if at]
    first, last = (of(at.number for at in lines) for of in (min, max))
    return replace(
        most,
        line=f"{lines[0].file}:{first}-{last} in {lines[0].function}",
        removals=tuple(removal for one in places for removal in one.removals),
        calls=sum(one.calls for one in places),
        copies=sum(one.copies for one in places),
        largest_bytes=max(one.largest_bytes for one in places),
        steps=max(one.steps for one in places),
        blocked_ns=sum(one.blocked_ns for one in places),
        idle_ns=sum(one.idle_ns for one in places),
        process=most.process if len({one.process for one in places}) == 1 else None,
    )
