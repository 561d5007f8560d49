"""`costly-line`: one line of the program that takes much of the kernel time, and is no layer.

A step needs its products, convolutions and attention. Other work of one line that takes a tenth of
the kernel time is often not needed in each step, or not in that form: norms of what does not
change, masks, samplers, losses written by hand.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from nsysflow.analysis.events.source_lines import OWN, without_line
from nsysflow.analysis.findings.finding import Finding, Valued, in_function, line
from nsysflow.analysis.findings.host_functions import code_of, frames_of_code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    by_name,
    in_words,
    phase_of,
    scaled,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.launching_lines import SHARED, WHOLE, launched_by
from nsysflow.analysis.findings.rules.last_resort import HELPS_OF_CLASS
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import duration, percent

COSTLY_PCT: Final = 10.0
"""A line with less of the kernel time is one of many."""

OF_STEP_PCT: Final = 5.0
"""Where the GPU mostly waits, the kernels of a line are no place to begin."""

NEEDED: Final = (*MATRIX_CLASSES, "triton", "optimizer", "comm")
"""Classes of kernels that a step needs, or that a compiler made."""

BESIDE: Final = 3
"""In a layer, other kernels take less than so many times the time of `NEEDED` ones. The nearer a
function is to that, the less of its lines counts."""

OF_ANY: Final = ("torch.compile the function: it fuses kernels that only pass tensors on",)
ONCE: Final = "compute it once before the loop, if what it takes does not change from step to step"
ONCE_OF_CALLS: Final = (
    "if its calls take the same values: compute it once a step, or once before the loop"
)

BEFORE_A_PRODUCT: Final = 0.5
"""Behind so many of the kernels stands the product that could come first."""

MOVES: Final = r"(?i)copy_kernel|tensorTransform|nchwToNhwc|nhwcToNchw"
"""Kernels that only cast a tensor or give it another order, between one operation and the next."""


class Order(NamedTuple):
    """Work that costs less behind the product that follows it.

    Attributes:
        pattern: of its kernels.
        classes: of the product.
        advice: what to do instead.
    """

    pattern: str
    classes: tuple[str, ...]
    advice: str


ORDERS: Final = (
    Order(  # a layer of a graph with 600,000 edges: 31.9 to 16.7 ms (H200, 2026-11-30)
        r"(?i)ReduceAdd\b|index_add|scatter_add|segment_(?:sum|reduce)|spmm|csrmm",
        ("matmul",),
        "if the product behind it makes its rows shorter, multiply first: A (X W) = (A X) W; fewer"
        " numbers are then fetched and added up",
    ),
    Order(  # 128 channels enlarged, and 19 of them made: 32.4 to 27.3 ms (H200, 2026-11-30)
        r"(?i)upsample_",
        ("conv", "matmul"),
        "if a 1x1 convolution behind it makes fewer channels, convolve first, and then enlarge:"
        " the result is the same",
    ),
)
"""Rows that are added up, as those of a graph's neighbours; images that are enlarged."""

SAME: Final = 0.9
"""Most of a line's calls run the same kernels with the same sizes."""


def costly_line(subject: JudgedReport) -> Iterator[Finding]:
    """The line that launches most kernel time outside layers, where that is much of the step.

    Of 56 programs with a planted fault, 14 have such a line: in 12 it is the fault's (H100 and
    H200, 2026-11-30). `BESIDE` was chosen on 49 of them.
    """
    if not subject.of_steps or subject.timeline.launch_stacks is None:
        return
    launched = launched_by(subject.view, subject.kernels).drop("ns")
    kernels = subject.kernels.hstack(launched)
    lines = _lines(subject, kernels)
    whole_ns = int(kernels["ns"].sum())
    parts = lines.filter(pl.col("ns") <= WHOLE * whole_ns).sort(-pl.col("cost_ns"), "source", "via")
    for first in parts.head(1).rows(named=True):
        of_kernels = 100 * first["cost_ns"] >= COSTLY_PCT * whole_ns > 0
        of_step = 100 * subject.per_step(first["cost_ns"]) >= OF_STEP_PCT * subject.step_ns
        if of_kernels and of_step:
            yield _finding(subject, kernels, lines, first)


def _lines(subject: JudgedReport, kernels: pl.DataFrame) -> pl.DataFrame:
    """The lines that launched kernels outside of backward passes: `source`, `via`, `function`, `ns`
    of these kernels, and `cost_ns`, how much of it is no part of a layer."""
    forward = kernels.filter(~pl.col("lent")).drop_nulls("source")
    beside = pl.col("ns").filter(~pl.col("class").is_in(NEEDED)).sum()
    lines = forward.group_by("source", "via").agg(pl.col("ns").sum(), beside.alias("beside_ns"))
    lines = _with_functions(subject, lines)
    beside_ns = pl.col("beside_ns").sum().over("function")
    needed_ns = pl.col("ns").sum().over("function") - beside_ns
    counts = (1 - BESIDE * needed_ns / beside_ns).fill_nan(0).clip(lower_bound=0)
    cost = (pl.col("beside_ns") * counts).cast(pl.Int64)
    return lines.select("source", "via", "function", "ns", cost.alias("cost_ns"))


def _with_functions(subject: JudgedReport, lines: pl.DataFrame) -> pl.DataFrame:
    """Lines with their `function`. Where its name does not tell it apart, as that of `forward`, it
    is the one that the same lines call."""
    own = frames_of_code(subject).filter(pl.col("kind") == OWN)
    stacks = own.group_by("stack", maintain_order=True).agg(
        pl.col("line").first().alias("source"), pl.col("line").slice(1, 1).first().alias("caller")
    )
    callers = stacks.group_by("source").agg(pl.col("caller").drop_nulls().unique().sort())
    name = without_line(pl.when(pl.col("via") == "").then("source").otherwise("via"))
    shared = pl.col("source").str.contains(SHARED) & (pl.col("via") == "")
    called = pl.when(shared).then(pl.col("caller").list.join(", ")).fill_null("")
    return lines.join(callers, on="source", how="left").with_columns(
        pl.concat_str(name, called, separator=" by ").alias("function")
    )


def _finding(
    subject: JudgedReport, kernels: pl.DataFrame, lines: pl.DataFrame, first: dict[str, Any]
) -> Finding:
    """The finding of a line, a row of `_lines`. All of its function may go, with its part of what
    no line is known for in the backward pass."""
    at = line(first["source"], first["via"])
    forward = kernels.filter(~pl.col("lent"))
    own = forward.filter(pl.col("source") == first["source"], pl.col("via") == first["via"])
    of_function = lines.filter(pl.col("function") == first["function"])
    known = kernels.filter(~pl.col("lent") | pl.col("backward")).join(
        of_function.select("source", "via"), on=["source", "via"], how="semi"
    )
    part = int(of_function["ns"].sum()) / int(forward["ns"].sum())
    unknown = kernels.filter(pl.col("lent") & ~pl.col("backward"))
    backward = unknown.with_columns((part * pl.col("ns")).cast(pl.Int64).alias("gain_ns"))
    rows = pl.concat([known.with_columns(pl.col("ns").alias("gain_ns")), backward])
    sums = own.group_by("class").agg(pl.col("ns").sum()).sort("ns", "class", descending=True)
    name = code_of(first["via"] or first["source"])
    share = percent(share_of_kernels(subject, own))
    evidence = [
        f"{at}: {in_words(subject, own)}",
        f"most of this time is in kernels of class {sums['class'][0]}",
    ]
    in_layer = first["via"] == "" and re.search(SHARED, first["source"]) is not None
    calls = 0 if in_layer else _same_calls(subject, forward, first)
    often = f", called {calls} times a step with the same sizes" if calls > 1 else ""
    if len(known) > len(own):
        evidence.append(f"all of {name}: {in_words(subject, known)}")
    if len(backward):
        gain = duration(subject.worst_ns(backward, "gain_ns"))
        evidence.append(f"its part of the backward pass is estimated as {gain}")
    finding = Finding(
        rule=COSTLY,
        title=f"one line takes {share} of kernel time{often}: {at}",
        change=(
            *(order.advice for order in ORDERS if _before_products(forward, own, order)),
            *(() if in_layer else (ONCE_OF_CALLS if calls > 1 else ONCE,)),
            *HELPS_OF_CLASS.get(str(sums["class"][0]), OF_ANY),
            *((ONCE,) if in_layer else ()),
        ),
        evidence=tuple(evidence),
        table="code",
        size_ns=subject.worst_ns(rows, "gain_ns"),
        steps=min(subject.steps, subject.steps_with(own["start_ns"])),
        changes=Changes(scaled=scaled(subject.kernels, rows)),
        exact=False,
        phase=phase_of(subject, own.with_columns(pl.col("ns").alias("gain_ns"))),
        source=first["source"],
        via=first["via"],
        culprit=str(by_name(own)["short_name"].cast(pl.String)[0]),
    )
    return counting_launches(subject, finding, known["op"], inside_calls=True)


def _before_products(forward: pl.DataFrame, own: pl.DataFrame, order: Order) -> bool:
    """Whether a line mostly does work that costs less behind the product that follows.

    Args:
        forward: kernels in order, outside of backward passes.
        own: those of the line.
        order: what work, and of what class the product is.
    """
    work = own.filter(matching(own["name"], order.pattern))
    if 2 * int(work["ns"].sum()) <= int(own["ns"].sum()):
        return False
    computing = forward.filter(~matching(forward["name"], MOVES))
    behind = computing.select("op", pl.col("class").shift(-1).over("lane").alias("behind"))
    multiplied = behind.join(work, on="op", how="semi").filter(
        pl.col("behind").is_in(order.classes)
    )
    return len(multiplied) >= BEFORE_A_PRODUCT * len(work)


def _same_calls(subject: JudgedReport, forward: pl.DataFrame, first: dict[str, Any]) -> int:
    """How often a step calls a line with the same kernels and sizes; 0 where its calls differ. A
    call ends where a kernel of another line follows.

    Four searches for the same neighbours took 30.0 ms a step, and one 21.7 (H200, 2026-11-30).
    """
    at = (pl.col("source") == first["source"]) & (pl.col("via") == first["via"])
    own = forward.sort("lane", "start_ns").select(
        (~at).fill_null(value=True).cum_sum().over("lane").alias("before"),
        *("lane", "name", "shape", at.fill_null(value=False).alias("own")),
    )
    calls = own.filter("own").group_by("lane", "before", maintain_order=True).agg("name", "shape")
    most = calls.group_by("name", "shape").len()["len"].max()
    same = isinstance(most, int) and most >= SAME * len(calls)
    return round(len(calls) / subject.steps) if same else 0


COSTLY: Final = "costly-line"

OF_ALL_KERNELS: Final = (
    *("unfused-elementwise", "layout-transpose", "fp32-matmul", "tiny-kernels", "cast-storm"),
)
"""These may be about kernels of the whole program. A line is a place to begin."""

GOOD_PART: Final = 1 / 3
"""What saves this part of another finding may stand before it: below, the other matters more."""

TOLD: Final = 0.5
"""A finding that saves this part of what a costly line takes says why it is costly."""


def without_told_lines(valued: Sequence[Valued]) -> Iterator[Valued]:
    """The findings without a costly line of which another one says why."""
    for one in valued:
        others = (other for other in valued if other.finding.rule != COSTLY)
        if one.finding.rule != COSTLY or not any(_says_why(other, one) for other in others):
            yield one


def _says_why(one: Valued, costly: Valued) -> bool:
    """Whether a finding says why a line is costly. It is of the same function, and saves a good
    part of it or is about its launches; or it is about the line's largest kernel, there or at no
    line."""
    function = in_function(costly.finding.source)
    there = in_function(one.finding.source) == function
    if there and (one.finding.rule == "launch-bound" or one.alone_ns >= TOLD * costly.alone_ns):
        return True
    of_some = one.finding.rule not in OF_ALL_KERNELS and (there or not one.finding.source)
    return of_some and one.finding.culprit == costly.finding.culprit


def with_costly_line_early(found: Sequence[Valued]) -> list[Valued]:
    """The findings; a costly line stands before those of all kernels that name no place, unless
    they save far more. It stands behind those of some kernels that save half as much."""
    costly = next((one for one in found if one.finding.rule == COSTLY), None)
    if costly is None:
        return [*found]
    others = [one for one in found if one is not costly]
    early = (
        at
        for at, one in enumerate(others)
        if one.finding.rule in OF_ALL_KERNELS
        and not one.finding.source
        and costly.alone_ns >= GOOD_PART * one.alone_ns
    )
    told = (at for at, one in enumerate(others, start=1) if _tells(one, costly))
    at = max(min(next(early, len(others)), found.index(costly)), *told, 0)
    return [*others[:at], costly, *others[at:]]


def _tells(one: Valued, costly: Valued) -> bool:
    """Whether a finding may say why the line is costly."""
    of_some = one.finding.makes_kernels_faster and one.finding.rule not in OF_ALL_KERNELS
    return of_some and one.alone_ns >= TOLD * costly.alone_ns
