"""The profiler's share of a recorded step, taken out of its program (spec §14.15 to §14.17)."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.replay import Program
from nsysflow.analysis.selection.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class RecordingCost:
    """What recording takes of the host's time, and of the GPU's.

    Attributes:
        permille: of the first `FULL_NS` at each call; a third of what is longer, as far as that is
            work: a long call copies or allocates, which no profiler slows.
        backtrace_ns: at each call that has a backtrace.
        gap_ns: between an operation and the next; `LEAST_GAP_NS` of it stay.
    """

    permille: int
    backtrace_ns: int
    gap_ns: int


FASTEST_HOST: Final = 0.5
"""Recorded steps that waited for the host took up to 1.8 times as long as plain ones."""

FULL_NS: Final = 100_000
"""Recorded programs took 14 to 113 us a launch, and recording the same share of each. Long code
between calls only loses what samples take: a loader in Python 3 to 17 % (docs/facts.md)."""

OF_CALLS_PERMILLE: Final = 600
"""Of what a call takes itself, recording takes this part of the share that it takes of all: of
cudaLaunchKernel 16 to 23 %, also with backtraces, which are taken behind it (docs/facts.md)."""

LEAST_GAP_NS: Final = 500
"""As near kernels of a CUDA graph follow each other on an H100 that nothing records."""

LEAST_COST: Final = RecordingCost(permille=200, backtrace_ns=10_000, gap_ns=100)
MOST_COST: Final = RecordingCost(permille=600, backtrace_ns=35_000, gap_ns=700)
"""Of 40 recordings on H100s and H200s; backtraces of all launches cost 26 us each
(docs/facts.md). Recorded, six programs took 0.16 to 0.71 us a kernel more on the GPU."""


StepOf = Callable[[RecordingCost], int]
"""How long a step takes without what recording costs."""

Shares = tuple[int, int]
"""What share of the host's time recording takes, in whole percent: at least, and at most."""

USUAL_PCT: Final[Shares] = (LEAST_COST.permille // 10, MOST_COST.permille // 10)


def shares_of(timeline: Timeline, step_ns_of: StepOf) -> Shares:
    """What share of the host's time recording takes: this machine's where they are known, else the
    usual ones. Where a step before the window was timed, at least so much that a step takes no
    longer than that one, which the profiler slowed less than the recorded ones (spec §14.16).

    Args:
        timeline: the trace.
        step_ns_of: how long a step takes without what recording costs.
    """
    least, most = timeline.options.recording_pct or USUAL_PCT
    warm_up_ns = _warm_up_step_ns(timeline)
    if warm_up_ns is None:
        return least, most
    between = cost_between((least, most))

    def step_ns(pct: int) -> int:
        return step_ns_of(replace(between, permille=10 * pct))

    if step_ns(least) <= warm_up_ns:
        return least, most
    more = range(least + 1, max(least + 1, MOST_PCT))
    slowed = _first(more, lambda pct: step_ns(pct) <= warm_up_ns)
    return slowed, max(most, slowed)


def _warm_up_step_ns(timeline: Timeline) -> int | None:
    """How long a step took before the window, with the profiler attached: the median of the
    processes that timed it. None where none did, and of a part or another loop."""
    options = timeline.options
    if options.step or options.steps or options.range or options.whole:
        return None
    median_ns = timeline.trace.captures["unprofiled_step_ns"].median()
    return round(median_ns) if isinstance(median_ns, float) else None


def extreme_costs(shares: Shares) -> tuple[RecordingCost, RecordingCost]:
    """The most and the least that recording costs, with these shares of the host's time."""
    least, most = shares
    return replace(MOST_COST, permille=10 * most), replace(LEAST_COST, permille=10 * least)


def cost_between(shares: Shares) -> RecordingCost:
    """The middle of the least and the most that recording costs."""
    most, least = extreme_costs(shares)
    return RecordingCost(
        permille=(least.permille + most.permille) // 2,
        backtrace_ns=(least.backtrace_ns + most.backtrace_ns) // 2,
        gap_ns=(least.gap_ns + most.gap_ns) // 2,
    )


ALL_TRACED: Final = 0.1
"""Where more launches than these have a line, each call has a backtrace. Of `waits`, 1 % had."""


def have_backtraces(calls: pl.DataFrame) -> bool:
    """Whether each call of a report has a backtrace, and not only those that wait.

    Args:
        calls: of `Events`.
    """
    launches = calls.filter(pl.col("class") == "launch")
    return launches["source"].is_not_null().sum() > ALL_TRACED * len(launches)


def behind_backtraces(program: Program, events: Events) -> pl.Series:
    """Of each call of a program, whether the one that it comes after has a backtrace: it is taken
    when that call returns. (Between a wait with one and the next call 37 us pass, and 15 us behind
    a launch without: `regulator`, docs/facts.md.)

    Args:
        program: as recorded.
        events: those that it is of.
    """
    pred = program.calls["pred"]
    if have_backtraces(events.calls):
        return pred.is_not_null()
    traced = events.trace.backtraces.join(events.threads[["thread", "thread_no"]], on="thread")
    key = ["thread_no", "start_ns"]
    nodes = program.calls.join(traced, on=key, how="semi")["node"]
    return pred.is_in(nodes.implode()).fill_null(value=False)


def without_cost(program: Program, cost: RecordingCost, *, traced: pl.Series) -> Program:
    """`program` without what recording takes: of the host's time at each call, some of what the
    call costs and the rest of the work before it, and of the time between operations. The first
    call of a thread keeps its time.

    Args:
        program: as recorded.
        cost: what recording takes.
        traced: of each call, whether it comes after one with a backtrace.
    """
    work_ns = pl.when(pl.col("pred").is_not_null()).then(pl.col("work_ns").clip(lower_bound=0))
    own_ns = pl.col("cost_ns").clip(lower_bound=0).alias("own_ns")
    host = program.calls.select(work_ns.alias("work_ns"), own_ns)
    host = host.with_columns((pl.col("work_ns") + pl.col("own_ns")).alias("host_ns"))
    taken_ns = pl.when(pl.lit(traced)).then(cost.backtrace_ns).otherwise(0)
    backtrace_ns = pl.min_horizontal("host_ns", taken_ns)
    host = host.with_columns(backtrace_ns.alias("backtrace_ns"))
    rest_ns = pl.col("host_ns") - pl.col("backtrace_ns")
    first_ns = pl.min_horizontal(rest_ns, FULL_NS)
    longer_ns = pl.min_horizontal(rest_ns - first_ns, "work_ns")
    share_ns = cost.permille * (3 * first_ns + longer_ns) // 3_000
    less_ns = (pl.col("backtrace_ns") + share_ns).fill_null(0)
    of_call_ns = cost.permille * OF_CALLS_PERMILLE * pl.min_horizontal("own_ns", FULL_NS) // 10**6
    from_call_ns = pl.min_horizontal(less_ns, of_call_ns)
    from_work_ns = pl.min_horizontal(pl.col("work_ns").fill_null(0), less_ns - from_call_ns)
    less = host.select(from_work_ns.alias("work_ns"), from_call_ns.alias("cost_ns"))
    nearer = replace(
        program,
        ops=program.ops.with_columns(_nearer("gap_ns", cost.gap_ns)),
        edges=program.edges.with_columns(_nearer("lag_ns", cost.gap_ns)),
    )
    calls = program.calls.with_columns(pl.col(name) - less[name] for name in less.columns)
    return replace(nearer, calls=calls)


def _nearer(name: str, less_ns: int) -> pl.Expr:
    """A time between two operations, so much less of what is more than `LEAST_GAP_NS`."""
    spare = (pl.col(name) - LEAST_GAP_NS).clip(0, less_ns)
    return pl.col(name) - spare


WAITS_FOR_DATA: Final = 0.05
"""A loop that waits for batches for a larger part of its steps is held up by their workers …"""

GPU_BOUND: Final = 0.95
"""… unless its GPU runs something for so much of them."""


@dataclass(frozen=True, kw_only=True)
class PlainFeed:
    """How the batches of a DataLoader hold up plain steps.

    Attributes:
        own_ns: how long a step takes without its waits for batches.
        share: how long a plain step takes of a recorded one.
    """

    own_ns: int
    share: float


def plain_feed(options: Options, recorded_ns: int, busy_ns: int) -> PlainFeed | None:
    """How batches hold up plain steps; None where they do not, and where nothing was timed.

    Args:
        options: with an `unrecorded_step_ns` and an `unrecorded_wait_ns`.
        recorded_ns: how long a recorded step takes.
        busy_ns: how long its GPU runs something.
    """
    step_ns, wait_ns = options.unrecorded_step_ns or 0, options.unrecorded_wait_ns or 0
    if wait_ns <= WAITS_FOR_DATA * step_ns or busy_ns >= GPU_BOUND * step_ns or not recorded_ns:
        return None
    own_ns = max(step_ns - wait_ns, busy_ns)
    return PlainFeed(own_ns=own_ns, share=min(1.0, step_ns / recorded_ns))


def fed_as_plain(program: Program, feed: PlainFeed) -> Program:
    """`program` whose loop gets each batch as long after the one before as plain steps do, and
    waits for none otherwise."""
    recorded_ns = pl.col("start_ns") - pl.col("start_ns").gather(pl.col("fed_after"))
    feed_ns = (recorded_ns * feed.share).round().cast(pl.Int64).alias("feed_ns")
    none = pl.lit(None, pl.Int64).alias("batch_ns")
    return replace(program, calls=program.calls.with_columns(feed_ns, none))


def with_batches_ready(program: Program) -> Program:
    """`program` whose loop waits for no batch."""
    none = pl.lit(None, pl.UInt32).alias("fed_after"), pl.lit(None, pl.Int64).alias("batch_ns")
    return replace(program, calls=program.calls.with_columns(none))


def undisturbed(
    program: Program,
    timeline: Timeline,
    feed: PlainFeed | None,
    step_ns_of: Callable[[Program], int],
) -> Program:
    """`program` without the profiler's share: with steps as long as one that was not recorded;
    where none is known, without the middle of what recording costs.

    Args:
        program: as recorded.
        timeline: the trace that it is of.
        feed: how batches hold up plain steps.
        step_ns_of: how long a step of a program takes.
    """
    without = _without(program, timeline)

    def step_ns(cost: RecordingCost) -> int:
        return step_ns_of(without(cost))

    def own_step_ns(cost: RecordingCost) -> int:
        return step_ns_of(with_batches_ready(without(cost)))

    cost = cost_shown_by(timeline.options, feed, step_ns, own_step_ns)
    if cost is None:
        return without(cost_between(shares_of(timeline, step_ns)))
    return without(cost) if feed is None else fed_as_plain(without(cost), feed)


def extremes(
    program: Program, timeline: Timeline, step_ns_of: Callable[[Program], int]
) -> tuple[Program, Program]:
    """`program` without the most that recording costs, and without the least, where no plain step
    is known.

    Args:
        program: as recorded.
        timeline: the trace that it is of.
        step_ns_of: how long a step of a program takes.
    """
    without = _without(program, timeline)
    most, least = extreme_costs(shares_of(timeline, lambda cost: step_ns_of(without(cost))))
    return without(most), without(least)


def _without(program: Program, timeline: Timeline) -> Callable[[RecordingCost], Program]:
    """What takes a cost out of a program."""
    return partial(without_cost, program, traced=behind_backtraces(program, timeline.events))


MOST_PCT: Final = 80
"""No recording was seen to take more than half of the host's time; more is not sought."""


HIDDEN: Final = 0.99
"""The GPU hides what recording costs if a step without it is at most 1 % shorter."""

SLOWER: Final = 1.1
"""A step that is so many times as long as the recorded one says nothing of what recording costs."""


def cost_shown_by(
    options: Options, feed: PlainFeed | None, step_ns_of: StepOf, own_step_ns_of: StepOf
) -> RecordingCost | None:
    """What recording costs, where a step was timed that was not recorded; else None.

    Args:
        options: with or without an `unrecorded_step_ns`.
        feed: how batches hold up plain steps.
        step_ns_of: of steps as they are.
        own_step_ns_of: of steps that wait for no batch.
    """
    known_pct = options.recording_pct
    if feed is not None:
        return _cost_shown_by(feed.own_ns, known_pct, own_step_ns_of)
    if options.unrecorded_step_ns is None:
        return None
    return _cost_shown_by(options.unrecorded_step_ns, known_pct, step_ns_of)


def _cost_shown_by(
    unrecorded_ns: int, known_pct: Shares | None, step_ns_of: StepOf
) -> RecordingCost:
    """What recording costs, where a step was timed that was not recorded: the least that this one
    shows; the middle of what is usual, or known of this machine, where that is more and the GPU
    hides it. It would show once a change makes the GPU faster (spec §14.15).

    Args:
        unrecorded_ns: how long the step took that was not recorded.
        known_pct: what share of the host's time recording takes on this machine, where known.
        step_ns_of: how long a step takes without what recording costs.
    """

    def step_ns(permille: int) -> int:
        return step_ns_of(cost_in_proportion(permille))

    recorded_ns = step_ns(0)
    shown = _shown_permille(unrecorded_ns, step_ns) if unrecorded_ns < recorded_ns else 0
    middle = cost_between(known_pct or USUAL_PCT).permille
    shortest_ns = HIDDEN * min(unrecorded_ns, recorded_ns)
    alike = shown < middle and unrecorded_ns <= SLOWER * recorded_ns
    hidden = alike and step_ns(middle) >= shortest_ns
    return cost_in_proportion(middle if hidden else shown)


def _shown_permille(unrecorded_step_ns: int, step_ns: Callable[[int], int]) -> int:
    """The least share of the host's time without which a step takes no longer than one that was
    not recorded; where none is enough, 1 % longer than without the most."""
    most = 10 * MOST_PCT
    least_ns = step_ns(most)
    wanted_ns = unrecorded_step_ns if least_ns <= unrecorded_step_ns else least_ns / HIDDEN
    return _first(range(most), lambda share: step_ns(share) <= wanted_ns)


def cost_in_proportion(permille: int) -> RecordingCost:
    """All costs as many times the usual middle as this share of the host's time is."""
    usual = cost_between(USUAL_PCT)
    return RecordingCost(
        permille=permille,
        backtrace_ns=usual.backtrace_ns * permille // usual.permille,
        gap_ns=usual.gap_ns * permille // usual.permille,
    )


HOST_BOUND: Final = 0.9
"""What recording takes of the host is only read from a step that a faster host would make shorter
than this share of it."""


MOST_SLOWED: Final = 2
"""A step that is this many times as long as one that was not recorded has other reasons, too."""


def recorded_pct(unrecorded_step_ns: int, step_ns_of: StepOf) -> int | None:
    """What share of the host's time recording took, so that a step without it takes as long as one
    that was not recorded; None where the step does not show it.

    Args:
        unrecorded_step_ns: a step without the profiler.
        step_ns_of: how long a step takes without what recording costs.
    """

    def step_ns(permille: int) -> int:
        return step_ns_of(cost_in_proportion(permille))

    recorded_ns, fast_ns, least_ns = map(step_ns, (0, MOST_COST.permille, 10 * MOST_PCT))
    if not unrecorded_step_ns < recorded_ns <= MOST_SLOWED * unrecorded_step_ns:
        return None  # the program did other work, or the machine was slower then
    if fast_ns > HOST_BOUND * recorded_ns or least_ns > unrecorded_step_ns:
        return None
    return -(-_shown_permille(unrecorded_step_ns, step_ns) // 10)


def _first(shares: range, is_met: Callable[[int], bool]) -> int:
    """The first of these shares that meets a condition, which those behind it meet too; the end of
    the range where none does."""
    return shares.start + bisect_left(shares, True, key=is_met)


def with_faster_host(program: Program, factor: float) -> Program:
    """`program` with the host's work and what its calls cost times `factor`, allocations apart."""
    work, cost = ((pl.col(name) * factor).round().cast(pl.Int64) for name in ("work_ns", "cost_ns"))
    allocates = pl.col("class") == "alloc"
    calls = program.calls.with_columns(
        work.alias("work_ns"), pl.when(allocates).then("cost_ns").otherwise(cost).alias("cost_ns")
    )
    return replace(program, calls=calls)
