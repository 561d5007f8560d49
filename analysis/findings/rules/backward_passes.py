"""What backward passes compute twice.

`backward-per-loss`: each loss of a step has a backward pass of its own, and what they share is
walked backwards once for each.

The later passes end with the kernels of the first one, and add their gradients to those that are
there. So networks that are merely built alike are told apart, and losses whose gradients are
wanted one by one. Passes of torch.autograd.grad add nothing: they are told by being the same from
end to end, and by more products than one pass has for those of the forward pass before them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    kernels_by_pass,
    share_of_kernels,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.launching_lines import calling_line
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import number, percent

REPEATED_PCT: Final = 3.0
"""A smaller share of the kernel time is a layer or two."""

ADDED: Final = 4
"""For so many matrix products or fewer in what is repeated, a gradient is added: a layer has one or
two of them, each of one to three kernels, and a weight."""

ADDS: Final = "elementwise"
"""The class of what adds a gradient to the one that is there."""

BETWEEN: Final = (ADDS, "copy/cast")
"""Classes of which a later pass may run more: it adds a gradient that the first one just kept, or
copied."""

FEWEST: Final = 3
"""So many passes that are the same come from one call after the other."""

PRODUCTS: Final = 2
"""A pass has so many products for each of the forward pass at most: the gradients of two
factors."""

PARTS: Final = r"(?i)split_?k_?(?:reduce|kernel)"
"""Kernels that only add up parts of a product."""

CHANGE: Final = (
    "add the losses up and call backward once: (loss_a + loss_b).backward()",
    "to get gradients of each task (PCGrad, GradNorm): torch.autograd.grad(loss, shared), where"
    " shared is the output of the trunk or its last layer, and one backward from there",
    "losses that become known one after another: call backward once, after the last one",
)

CHANGE_OF_GRADIENTS: Final = (
    "one call for all inputs of an output: torch.autograd.grad(u, (x, y, t), ...)",
    "many outputs: torch.autograd.grad(..., is_grads_batched=True), or torch.func.jacrev: all at"
    " once",
    "few inputs of many outputs: forward mode, torch.func.jvp or jacfwd",
)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Kernels in a row of one step, stream and thread, all of the backward pass or none.

    Attributes:
        step: the step, on a stream.
        backward: whether they are of the backward pass.
        first: the first kernel, a row.
        keys: names and grids of all kernels.
        products: how many of them are products.
    """

    step: tuple[int, int]
    backward: bool
    first: int
    keys: tuple[int, ...]
    products: int

    @property
    def rows(self) -> range:
        """The kernels."""
        return range(self.first, self.first + len(self.keys))


@dataclass(frozen=True, kw_only=True)
class SamePasses:
    """Backward passes in a row that are the same.

    Attributes:
        passes: all of them, the first one too.
        share: that of all but the first, of what was launched for them and before them.
        differentiating: the kernels of the passes behind them that differentiate them again.
    """

    passes: tuple[Stretch, ...]
    share: float
    differentiating: tuple[int, ...]

    @property
    def repeated(self) -> list[int]:
        """The kernels of all but the first."""
        return [row for one in self.passes[1:] for row in one.rows]

    @property
    def differentiated_again(self) -> list[int]:
        """As many of the kernels that differentiate them as is their share, evenly spread."""
        return [
            row
            for at, row in enumerate(self.differentiating)
            if int((at + 1) * self.share) > int(at * self.share)
        ]


def backward_per_loss(subject: JudgedReport) -> Iterator[Finding]:
    """Backward passes in a row that end with the same kernels, and the host's time to launch these
    again.

    A network with two heads took 29.2 ms with a pass for each loss, and 22.3 with one (H200,
    2026-11-29).
    """
    kernels = kernels_by_pass(subject)
    if same := same_passes(kernels):
        yield from _same_gradients(subject, kernels, same)
        return
    rows = kernels.hstack(repeated_parts(kernels)).drop_nulls("pass")
    share = share_of_kernels(subject, rows)
    if rows.is_empty() or share < REPEATED_PCT:
        return
    passes = 1 + round(rows["pass"].n_unique() / rows["first"].n_unique())
    finding = kernel_finding(
        subject,
        rows,
        rule="backward-per-loss",
        title=f"{passes} backward passes in a row through the same layers:"
        f" {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(
            "a later pass repeats the end of the first, without a forward pass between, and adds"
            f" its gradients to those of the first: {in_words(subject, rows)}",
        ),
    )
    yield counting_launches(subject, finding, rows["op"])


def _same_gradients(
    subject: JudgedReport, kernels: pl.DataFrame, same: list[SamePasses]
) -> Iterator[Finding]:
    """All but the first of passes that are the same, and what differentiates these: a network of
    Navier-Stokes took 41.9 ms with a call for each of eight derivatives, and 32.0 with three calls
    (H200, 2026-11-30)."""
    again = [row for one in same for row in one.differentiated_again]
    rows = kernels[sorted([*again, *(row for one in same for row in one.repeated)])]
    share = share_of_kernels(subject, rows)
    if share < REPEATED_PCT:
        return
    passes = round(sum(len(one.passes) for one in same) / len(same))
    finding = kernel_finding(
        subject,
        rows,
        rule="backward-per-loss",
        title=f"{passes} backward passes in a row are the same: {percent(share)} of kernel time",
        change=CHANGE_OF_GRADIENTS,
        evidence=(
            "together they have more products than one backward pass, so they are several calls of"
            f" torch.autograd.grad; all but the first take {in_words(subject, rows)}",
            "one call can replace only those of the same output; the report does not show which",
            *_differentiated(subject, len(again)),
        ),
    )
    repeated = kernels[sorted(row for one in same for row in one.repeated)]
    source, via = calling_line(subject, repeated)
    called = f"{finding.title}, called at {line(source, via)}" if source else finding.title
    finding = replace(finding, title=called, source=source, via=via)
    yield counting_launches(subject, finding, rows["op"])


def _differentiated(subject: JudgedReport, count: int) -> Iterator[str]:
    """How many kernels differentiate such passes, if some do."""
    if count:
        yield (
            f"{number(subject.per_step(count))} of these kernels differentiate the repeated passes"
            " (create_graph=True), by estimate"
        )


def repeated_parts(kernels: pl.DataFrame) -> pl.DataFrame:
    """Of each kernel `pass`, a number for the backward pass in which it repeats the end of the
    first one in its row, and `first`, that one's number; null where it repeats nothing.

    Args:
        kernels: stream by stream in order: `lane`, `step`, `backward`, `thread_no` (that launched
            it), `class` and `key`, the same for kernels of one name and shape.
    """
    stretch = pl.struct("lane", "step", "backward", "thread_no").rle_id().alias("pass")
    rows = kernels.select(
        *("lane", "step", "backward", "key"),
        pl.col("class").is_in([*MATRIX_CLASSES]).alias("matrix"),
        pl.col("class").is_in(BETWEEN).alias("between"),
        (pl.col("class") == ADDS).cum_sum().alias("adds"),
        stretch,
    ).with_row_index("row")
    later = _later_passes(rows)
    marks = rows.filter(~pl.col("between"), pl.col("pass").is_in([*later["pass"], *later["first"]]))
    up_to = rows.group_by("pass").agg(pl.col("adds").last().alias("of_pass"))
    until = pl.col("adds").shift(-1).over("pass").fill_null(pl.col("of_pass"))
    marks = marks.join(up_to, on="pass", maintain_order="left").select(
        *("row", "pass", "key", "matrix"),
        (until - pl.col("adds")).alias("adds"),
        pl.int_range(pl.len(), 0, -1).over("pass").alias("from_end"),
    )
    firsts = marks.select(pl.col("pass").alias("first"), "from_end", "key", "adds")
    alike = (
        marks.join(later, on="pass")
        .join(firsts, on=["first", "from_end"], suffix="_first")
        .sort("row", descending=True)
        .with_columns(
            (pl.col("key") == pl.col("key_first")).cum_min().over("pass").alias("same"),
            (pl.col("adds") > pl.col("adds_first")).alias("more"),
            pl.col("matrix").cum_sum().over("pass"),
        )
    )
    adding = alike.filter("same", "more")
    parts = adding.group_by("pass", "first").agg(
        pl.col("row").min().alias("from_row"), pl.col("matrix").max(), pl.len().alias("added")
    )
    parts = parts.filter(pl.col("matrix") > 0, ADDED * pl.col("added") >= pl.col("matrix"))
    placed = rows.select("row", "pass").join(parts, on="pass", how="left", maintain_order="left")
    inside = pl.col("row") >= pl.col("from_row")
    return placed.select(
        pl.when(inside).then(pl.col(name)).alias(name) for name in parts.columns[:2]
    )


def _later_passes(rows: pl.DataFrame) -> pl.DataFrame:
    """The backward passes, as `pass`, that come behind another one in their step and on their
    stream, with no product outside of backward between, and the `first` in such a row."""
    passes = rows.filter("matrix").unique("pass", keep="first", maintain_order=True)
    place = pl.struct("lane", "step", "backward")
    passes = passes.with_columns(place.rle_id().alias("in_row")).filter("backward")
    first = pl.col("pass").first().over("in_row").alias("first")
    return passes.select("pass", first).filter(pl.col("pass") != pl.col("first"))


def same_passes(kernels: pl.DataFrame) -> list[SamePasses]:
    """The rows of passes that are the same.

    Args:
        kernels: stream by stream in order: `lane`, `step`, `backward`, `thread_no` (that launched
            it), `class`, `name` and `key`, the same for kernels of one name and shape.
    """
    return [
        same
        for _, step in groupby(_stretches(kernels), key=lambda one: one.step)
        for same in _of_step(list(step))
    ]


def _of_step(stretches: list[Stretch]) -> Iterator[SamePasses]:
    forward: list[Stretch] = []
    parts = [(key, list(part)) for key, part in groupby(stretches, key=lambda one: one.backward)]
    for at, (backward, part) in enumerate(parts):
        if not backward:
            forward = part
            continue
        same = [one for one in part if one.keys == part[0].keys]
        products = sum(one.products for one in same)
        before = sum(one.products for one in forward)
        if len(same) < FEWEST or not before or products <= PRODUCTS * before:
            continue
        launched = sum(len(one.keys) for one in (*forward, *part))
        behind = [one for key, later in parts[at + 1 :] if key for one in later]
        yield SamePasses(
            passes=tuple(same),
            share=sum(len(one.keys) for one in same[1:]) / launched,
            differentiating=tuple(
                row for one in behind if one.products >= PRODUCTS * products for row in one.rows
            ),
        )


def _stretches(kernels: pl.DataFrame) -> Iterator[Stretch]:
    """The stretches with products, in order."""
    place = pl.struct("lane", "step", "backward", "thread_no").rle_id().alias("stretch")
    whole = pl.col("class").is_in([*MATRIX_CLASSES]) & ~pl.lit(matching(kernels["name"], PARTS))
    rows = (
        kernels.drop("index", strict=False)
        .with_row_index()
        .with_columns(place, whole.alias("whole"))
    )
    judged = rows.drop_nulls(["step", "backward"])
    stretches = judged.group_by("stretch", maintain_order=True).agg(
        pl.col("lane", "step", "backward", "index").first(), "key", pl.col("whole").sum()
    )
    for _, lane, step, backward, first, keys, products in stretches.filter(
        pl.col("whole") > 0
    ).iter_rows():
        yield Stretch(
            step=(lane, step),
            backward=backward,
            first=first,
            keys=tuple(keys),
            products=products,
        )
