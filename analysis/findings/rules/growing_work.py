"""`growing-work`: the same code takes longer from step to step.

A metric over all predictions so far, a cache or a history that torch.cat appends to, a state that
keeps the graphs of all steps before, a Python list that is searched or converted in each step: a
short recording makes little of it, and a long run is slower and slower.

Other things make steps longer, too. Where the clock falls or the batches grow, most products take
longer, and nothing is named. While text is generated, attention reads a longer context with each
token: only the copies of a cache are named then. Steps of random sizes, of a loader sorted by
length, of two kinds, or that wait for a rank or for another process have no such trend.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN, without_line
from nsysflow.analysis.findings.finding import Finding, Growth, Valued, in_function
from nsysflow.analysis.findings.host_functions import code_of, frames_of_code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    kernels_by_pass,
    trains,
)
from nsysflow.analysis.findings.kernels import CONCATENATES
from nsysflow.analysis.findings.launches import counting_launches, itself
from nsysflow.analysis.findings.launching_lines import launched_by
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.idle.samples import WAITS
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number

LEAST_STEPS: Final = 20
"""Of fewer, chance puts some in order: the medians of five parts rise by chance in one of 120
series, with a rank correlation of 0.9 in 20 steps in one of ten million."""

PARTS: Final = 5
"""The median of each fifth of the steps is longer than the one before it, …"""

EACH_PART: Final = 0.05
"""… by so much of the whole rise at least. Of a time that grows evenly it is a quarter, of one that
grows with the square of the step a tenth. A single jump gives nothing in most parts."""

CORRELATED: Final = 0.9
"""So far must the steps be in the order of their times (Spearman). A single jump in the middle
reaches 0.87, times that grow evenly and vary by 1 % reach 0.99 (an H200, 2026-11-30: 1.00)."""

RISE: Final = 1.25
"""The last fifth takes so many times the first one. In none of 27 recordings without such work a
kernel with 0.2 % of the step took even 1.1 times as long in the end, in order (2026-11-30)."""

WORTH_PCT: Final = 2.0
"""What grows takes so much of the step in the mean. Less says little of the steps recorded, …"""

STILL: Final = 1.05
"""Products that take no longer than this times what they took at first do not grow, …"""

IN_ORDER: Final = 0.5
"""… nor those whose times follow the steps by less than this rank correlation. Of 20 random times
one series in 80 reaches it."""

PRODUCTS_PCT: Final = 5.0
"""With fewer products in the kernel time all kernels tell whether the step itself grows."""

HALF: Final = 0.5
"""So much of the products must not grow, as they do with the batch or with a clock that falls."""

PRODUCTS: Final = ("matmul", "conv")
OF_CONTEXT: Final = (*PRODUCTS, "attention", "softmax")
"""Classes of kernels that have more to do with each token of a context."""

CHANGE: Final = (
    "keep running sums, counts or a histogram, and not everything so far",
    "compute it only where it is printed or logged, or once at the end",
    "of a history: keep the last N in a tensor that is allocated once (a ring buffer)",
)
CHANGE_OF_COPIES: Final = (
    "allocate it once for the longest case, and write into it: cache[:, at] = new",
    "a static KV cache (transformers: cache_implementation='static')",
    "append to a list, and concatenate once at the end",
)
CHANGE_OF_GRAPH: Final = (
    "detach what is kept from step to step, so that its graph ends there: state = state.detach()",
    "sum up and log numbers: total += loss.detach()",
    "no retain_graph=True in a loop",
)
CHANGE_OF_HOST: Final = (
    "search a dict or a set, not a list; convert or join only what is new",
    "keep running sums and counts, and not everything so far",
    "do it every so many steps, or once at the end",
)


@dataclass(frozen=True, kw_only=True)
class GrowingKernels:
    """The kernels of a place that take longer from step to step.

    Attributes:
        rows: rows of `kernels_by_pass`, with `source` and `via`.
        lent: whether autograd's thread launches them.
        trend: a row of `trends`, of all of them together where that is longest.
    """

    rows: pl.DataFrame
    lent: bool
    trend: dict[str, Any]


def growing_work(subject: JudgedReport) -> Iterator[Finding]:
    """What takes longer from step to step through the judged ones: kernels by the function that
    launches them (without lines those of each phase), and code of the host that the GPU waits for.

    Of 97 recordings 28 have twenty steps or more. One of these has growing work, and it alone is
    named (an H200, 2026-11-30).
    """
    for growing in growing_kernels(subject):
        yield _of_kernels(subject, growing)
    yield from _of_host(subject)


def growing_ops(subject: JudgedReport) -> pl.Series:
    """The operations (`op`) that findings of this rule are about."""
    none = subject.kernels["op"].clear()
    return pl.concat([none, *(growing.rows["op"] for growing in growing_kernels(subject))])


def growing_kernels(subject: JudgedReport) -> list[GrowingKernels]:
    """The kernels of each place that grow, where they are worth a finding."""
    return kept_with(subject, "growing kernels", lambda: [*_found_kernels(subject)])


TRACK: Final = ("process", "device")
_KEY: Final = (*TRACK, "source", "via", "lent", "known")
"""A series of times: of a line, or of a kernel where no line launches it alone."""


def trends(series: pl.DataFrame, *by: str) -> pl.DataFrame:
    """How the times of each series go with the steps: `by`, `steps` (how many), `first_ns` and
    `last_ns` (the medians of the first and the last fifth), `slope_ns` (what each step takes more),
    `correlation` (of ranks), `total_ns` and `grows`. A slope is the median of those between each
    step of the first half and the one half of all steps later: a few odd steps do not turn it.

    Args:
        series: `by`, `step` and `ns`, one row a step.
        by: the columns that tell series apart.
    """
    ns, step, count = pl.col("ns"), pl.col("step"), pl.len()
    half = count // 2
    rise = ns.slice(count - half, half) - ns.slice(0, half)
    run = step.slice(count - half, half) - step.slice(0, half)
    cuts = [count * part // PARTS for part in range(PARTS + 1)]
    medians = [
        ns.slice(begin, end - begin).median().alias(f"part{part}")
        for part, (begin, end) in enumerate(pairwise(cuts))
    ]
    found = (
        series.sort(*by, "step")
        .group_by(*by, maintain_order=True)
        .agg(
            count.cast(pl.Int64).alias("steps"),
            *medians,
            (rise / run).median().alias("slope_ns"),
            pl.corr("step", "ns", method="spearman").alias("correlation"),
            ns.sum().alias("total_ns"),
        )
        .filter(pl.col("steps") >= LEAST_STEPS)
    )
    first, last = pl.col("part0"), pl.col(f"part{PARTS - 1}")
    rises = (
        pl.col(f"part{part + 1}") - pl.col(f"part{part}") > EACH_PART * (last - first)
        for part in range(PARTS - 1)
    )
    grows = pl.all_horizontal(
        pl.col("correlation").fill_nan(0) >= CORRELATED, last >= RISE * first, *rises
    )
    return found.select(
        *by,
        "steps",
        first.alias("first_ns"),
        last.alias("last_ns"),
        *("slope_ns", "total_ns"),
        pl.col("correlation").fill_nan(0).fill_null(0),
        grows.fill_null(value=False).alias("grows"),
    )


def _found_kernels(subject: JudgedReport) -> Iterator[GrowingKernels]:
    """The growing kernels by place, most time first; none where the step itself grows."""
    if subject.steps < LEAST_STEPS:
        return
    kernels = _with_keys(subject)
    named = kernels.filter("named")
    series = named.group_by(*_KEY, "step").agg(pl.col("ns").sum())
    grown = trends(series, *_KEY).filter("grows")
    if grown.is_empty() or _step_grows(kernels):
        return
    grown = grown.with_columns(_place().alias("place"))
    rows = named.join(grown[[*_KEY, "place"]], on=[*_KEY], nulls_equal=True)
    for (place,), some in sorted(rows.group_by("place"), key=lambda group: -group[1]["ns"].sum()):
        each = some.group_by(*TRACK, "step").agg(pl.col("ns").sum())
        found = trends(each, *TRACK).sort(-pl.col("total_ns"), *TRACK)
        per_step_ns = subject.worst_ns(some, "ns")
        if found["grows"].any() and 100 * per_step_ns >= WORTH_PCT * subject.step_ns:
            trend = found.filter("grows").row(0, named=True)
            yield GrowingKernels(rows=some, lent=str(place).startswith(LENT), trend=trend)


LENT: Final = "backward of "


def _place() -> pl.Expr:
    """What growing kernels of one finding have in common: the function that launches them, or the
    line that calls the backward pass; without a line, the phase."""
    at = pl.when(pl.col("via") == "").then("source").otherwise("via")
    called = pl.format(LENT + "{}", "source")
    return pl.when("lent").then(called).otherwise(without_line(at)).fill_null("")


def _with_keys(subject: JudgedReport) -> pl.DataFrame:
    """The judged kernels, but for communication, which waits for others: with `_KEY`, and `named`,
    whether a finding may be about them."""
    kernels = kernels_by_pass(subject)
    if subject.timeline.launch_stacks is None:
        none = pl.lit(None, pl.String)
        lines = [none.alias("source"), none.alias("via"), pl.lit(value=False).alias("lent")]
        kernels = kernels.with_columns(lines)
    else:
        kernels = kernels.hstack(launched_by(subject.view, kernels)[["source", "via", "lent"]])
    path = subject.view.attribution.path_of(kernels["node"]).alias("path")
    name = pl.struct(pl.col("name").to_physical(), path).rank("dense")
    alone = pl.col("source").is_null() | pl.col("lent")
    kernels = kernels.with_columns(pl.when(alone).then(name).alias("known"))
    kernels = kernels.filter(pl.col("class") != "comm").drop_nulls("step")
    of_context = not trains(subject) and _context_grows(kernels)
    copies = matching(kernels["name"], CONCATENATES)
    return kernels.with_columns(
        copies.alias("named") if of_context else pl.lit(True).alias("named")
    )


def _context_grows(kernels: pl.DataFrame) -> bool:
    """Whether kernels that read the context take longer from step to step. Without training, that
    is text that is generated: only copies of its context can be left out."""
    reading = kernels.filter(pl.col("class").is_in(OF_CONTEXT))
    series = reading.group_by(*TRACK, "name", "step").agg(pl.col("ns").sum())
    return bool(trends(series, *TRACK, "name")["grows"].any())


def _step_grows(kernels: pl.DataFrame) -> bool:
    """Whether most of what the forward pass has to do takes longer from step to step: batches grow,
    or a clock falls."""
    forward = ~(pl.col("backward").fill_null(value=False) | pl.col("lent").fill_null(value=False))
    products = kernels.filter(pl.col("class").is_in(PRODUCTS), forward)
    few = 100 * int(products["ns"].sum()) < PRODUCTS_PCT * int(kernels["ns"].sum())
    rows = kernels if few else products
    series = rows.group_by(*_KEY, "step").agg(pl.col("ns").sum())
    found = trends(series, *_KEY)
    longer = pl.col("last_ns") > STILL * pl.col("first_ns")
    still = found.filter(~(longer & (pl.col("correlation") >= IN_ORDER)))
    return int(still["total_ns"].sum()) < HALF * int(rows["ns"].sum())


def _of_kernels(subject: JudgedReport, growing: GrowingKernels) -> Finding:
    """The finding of growing kernels. A backward pass that goes through one step only takes what it
    grows by; other work may go."""
    rows, trend = growing.rows, growing.trend
    copies = int(rows.filter(matching(rows["name"], CONCATENATES))["ns"].sum())
    change, left = CHANGE, 0.0
    if growing.lent:
        change = CHANGE_OF_GRAPH
        left = min(1.0, max(0.0, trend["slope_ns"]) * trend["steps"] / trend["total_ns"])
    elif 2 * copies > int(rows["ns"].sum()):
        change = CHANGE_OF_COPIES
    gain = (pl.col("ns") * (1 - left)).round().cast(pl.Int64).alias("gain_ns")
    finding = kernel_finding(
        subject,
        rows.with_columns(gain),
        rule=RULE,
        title=_title("kernels take", trend),
        change=change,
        evidence=(_in_numbers(trend), in_words(subject, rows)),
    )
    finding = counting_launches(subject, finding, rows["op"], inside_calls=True)
    return replace(finding, growth=_growth(trend, rows["step"]))


RULE: Final = "growing-work"


def _title(what: str, trend: dict[str, Any]) -> str:
    """`kernels take longer from step to step, 516 us → 1.79 ms`."""
    first, last = (duration(round(trend[name])) for name in ("first_ns", "last_ns"))
    return f"{what} longer from step to step, {first} → {last}"


def _in_numbers(trend: dict[str, Any]) -> str:
    """By how much they grow, in which steps."""
    steps, slope = number(trend["steps"]), duration(round(trend["slope_ns"]))
    return (
        f"each step takes {slope} more than the one before it; compared are the medians of the"
        f" first and the last fifth of {steps}"
    )


def _growth(trend: dict[str, Any], steps: pl.Series) -> Growth:
    """What later steps may be judged by."""
    numbers = steps.unique()
    return Growth(ns_a_step=trend["slope_ns"], middle=int(numbers.sum()) / len(numbers))


def _of_host(subject: JudgedReport) -> Iterator[Finding]:
    """The program's functions for which the GPU waits longer from step to step."""
    ran = _idle_by_function(subject)
    if ran.is_empty():
        return
    series = _in_blocks(subject, ran.drop_nulls("function"))
    found = trends(series, *TRACK, "function").filter("grows")
    found = found.sort("total_ns", *TRACK, "function", descending=[True, False, False, False])
    for trend in found.unique("function", keep="first", maintain_order=True).rows(named=True):
        rows = ran.filter(pl.col("function") == trend["function"])
        if 100 * subject.worst_ns(rows, "ns") >= WORTH_PCT * subject.step_ns:
            yield _host_finding(subject, ran, rows, trend)


_IDLE: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "phase": pl.String(),
        "source": pl.String(),
        "function": pl.String(),
        "ns": pl.Int64(),
    }
)


def _idle_by_function(subject: JudgedReport) -> Annotated[pl.DataFrame, _IDLE]:
    """Idle time of GPUs while the host ran a function of the program, and what that called. The
    function is null where it ran none, or stood in a library that waits. Empty where nothing says
    what it ran, or too few steps are judged."""
    view, instants = subject.view, subject.view.host_instants
    if instants is None or subject.steps < LEAST_STEPS:
        return _IDLE.to_frame()
    standing = subject.timeline.trace.frames.filter(pl.col("depth") == 0)
    waits = standing.filter(pl.col("function").cast(pl.String).str.contains(WAITS))["stack"]
    own = frames_of_code(subject).filter(
        pl.col("kind") == OWN, ~pl.col("stack").is_in(waits.implode())
    )
    own = own.sort("stack", "depth").unique("stack", keep="first", maintain_order=True)
    lines = instants.join(own.select("stack", source="line"), on="stack", how="left")
    gap = view.gaps[["process", "start_ns", "next_op"]][lines["row"]]
    phase = view.attribution.paths["joined"].cast(pl.String)[lines["path"]]
    rows = gap.select(
        "process",
        view.events.ops["device"][gap["next_op"]].alias("device"),
        "start_ns",
        phase.fill_null(OUTSIDE).alias("phase"),
        lines["source"],
        lines["source"].to_frame().select(without_line(pl.first()).alias("function"))["function"],
        lines["ns"],
    ).sort("start_ns")
    steps = subject.judged_steps.select(*TRACK, "start_ns", "step").sort("start_ns")
    placed = rows.join_asof(steps, on="start_ns", by=[*TRACK], check_sortedness=False)
    return placed.drop_nulls("step").select(_IDLE.names()).cast(_IDLE)


def _in_blocks(subject: JudgedReport, ran: pl.DataFrame) -> pl.DataFrame:
    """The mean time of each function in blocks of equal numbers of steps, `LEAST_STEPS` blocks or
    some more: a sample a millisecond says little of one step."""
    length = (pl.len().over(*TRACK) // LEAST_STEPS).clip(lower_bound=1)
    steps = subject.judged_steps.sort(*TRACK, "step").select(
        *TRACK,
        pl.col("step").cast(pl.Int64),
        (pl.int_range(pl.len()).over(*TRACK) // length).alias("block"),
    )
    functions = ran[[*TRACK, "function"]].unique()
    key = [*TRACK, "function"]
    spent = ran.group_by(*key, "step").agg(pl.col("ns").sum())
    every = steps.join(functions, on=[*TRACK]).join(spent, on=[*key, "step"], how="left")
    means = pl.col("step").mean(), pl.col("ns").fill_null(0).mean()
    return every.group_by(*key, "block").agg(*means)


def _host_finding(
    subject: JudgedReport, ran: pl.DataFrame, rows: pl.DataFrame, trend: dict[str, Any]
) -> Finding:
    """The finding of a function.

    Args:
        subject: the judged part.
        ran: all idle time, by `_idle_by_function`.
        rows: that of the function.
        trend: how it grows.
    """
    lines = rows.group_by("source").agg(pl.col("ns").sum()).sort(-pl.col("ns"), "source")
    source = str(lines["source"][0])
    size_ns = subject.worst_ns(rows, "ns")
    whole = ran.group_by("phase").agg(pl.col("ns").sum().alias("whole_ns"))
    parts = rows.group_by("phase").agg(pl.col("ns").sum()).join(whole, on="phase").sort("phase")
    left = parts.select("phase", (1 - pl.col("ns") / pl.col("whole_ns")).round(2)).rows()
    return Finding(
        rule=RULE,
        title=_title(f"the GPU waits for {code_of(source)}", trend),
        change=CHANGE_OF_HOST,
        evidence=(_in_numbers(trend), f"the GPU waits {subject.spent(size_ns)} for it"),
        table="host_stacks",
        size_ns=size_ns,
        at_most_ns=size_ns,
        steps=subject.steps,
        changes=Changes(faster_host=tuple((itself(subject, at), factor) for at, factor in left)),
        exact=False,
        process=subject.process_of(rows),
        phase=left[0][0] if len(left) == 1 and left[0][0] != OUTSIDE else "",
        source=source,
        growth=_growth(trend, rows["step"]),
    )


LATER: Final = 1.1
"""Steps after the recording that take so many times as long as recorded ones have more to do."""

MOST: Final = 0.5
"""Growing work explains longer steps if it makes so much of the difference, …"""

NOT_MORE: Final = 2.0
"""… and not more than so many times it: then it has ended."""


def grown_ns(found: Iterable[Finding], middle: float | None) -> int:
    """What growing work takes more in the step of this number than in the recorded ones.

    Args:
        found: the findings of a report or a run.
        middle: the number; None where it is not known, which gives 0.
    """
    growths = [one.growth for one in found if one.growth]
    if middle is None:
        return 0
    return max(0, round(sum(one.ns_a_step * (middle - one.middle) for one in growths)))


def explains(added_ns: int, longer_ns: int) -> bool:
    """Whether what has grown is most of what later steps take longer."""
    return MOST * longer_ns <= added_ns <= NOT_MORE * longer_ns


def with_growing_first(found: Sequence[Valued], subject: JudgedReport) -> list[Valued]:
    """The findings; growing work comes first, whatever it took so far, where it explains that steps
    after the recording take longer. A metric took 4 % of recorded steps of 24.6 ms, and later steps
    took 33.9 (an H200, 2026-11-30)."""
    options, recorded_ns = subject.timeline.options, subject.run_step_ns
    later_ns = options.unrecorded_step_ns or 0
    added_ns = grown_ns((one.finding for one in found), options.unrecorded_middle)
    first = later_ns >= LATER * recorded_ns and explains(added_ns, later_ns - recorded_ns)
    return sorted(found, key=lambda one: first and one.finding.growth is None)


OF_HOST: Final = ("host-code", "data-loading")


def without_told_code(valued: Iterable[Valued]) -> Iterator[Valued]:
    """The findings without those of host code of which growing work says why it takes long."""
    kept = [*valued]
    growing = [one for one in kept if one.finding.rule == RULE]
    for one in kept:
        function = in_function(one.finding.source)
        told = (
            in_function(other.finding.source) == function and other.alone_ns >= TOLD * one.alone_ns
            for other in growing
        )
        if one.finding.rule not in OF_HOST or not any(told):
            yield one


TOLD: Final = 0.5
"""It says why if it saves this part of what that finding does."""
