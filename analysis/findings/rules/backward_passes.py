"""What backward passes compute twice, or for nothing.

`backward-per-loss`: each loss of a step has a backward pass of its own, and what they share is
walked backwards once for each.

The later passes end with the kernels of the first one, and add their gradients to those that are
there. So networks that are merely built alike are told apart, and losses whose gradients are
wanted one by one. Passes of torch.autograd.grad add nothing: they are told by being the same from
end to end, and by more products than one pass has for those of the forward pass before them.

`unused-gradients`: weights get gradients that no optimizer uses. No recording tells that: what ran
in the program looked at a few of its steps (spec §12.13).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN
from nsysflow.analysis.findings.finding import Finding, line
from nsysflow.analysis.findings.host_functions import frames_of_code, stacks_at
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
from nsysflow.analysis.trace import UnusedModule
from nsysflow.base.units import duration, number, percent

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

UNUSED_PCT: Final = 1.0
"""Less of the kernel time is not worth a line."""

OF_WEIGHTS: Final = 0.5
"""A product has two gradients, that of its weights and that of its input."""

SHARED_PHASES: Final = ("forward", "eval")
"""Ranges of models; others are of one class."""

CHANGE_OF_UNUSED: Final = (
    "call .requires_grad_(False) on it after it is made: backward then computes no gradients of its"
    " weights, and none at all where its input needs none",
    "where only its output is wanted, as that of a teacher or of a target: with torch.no_grad():",
)

CHANGE_OF_THROWN: Final = (
    "for p in module.parameters(): p.requires_grad_(False) around the pass of the other optimizer,"
    " and True behind it",
    "or loss.backward(inputs=[*other.parameters()]): gradients of no others",
    "where its output is only an input of the other network in that pass: output.detach()",
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


def unused_gradients(subject: JudgedReport) -> Iterator[Finding]:
    """The part of the backward pass that computes gradients which no optimizer uses.

    Super-resolution with a VGG as its loss took 32.4 ms a step, and 22.9 once the VGG's weights
    required no gradients (H200, 2026-11-30).
    """
    notes = subject.timeline.trace.notes
    modules = [note.module for note in notes if note.module is not None]
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    backward = kernels.filter("backward")
    for module in modules:
        alone = sum(module.phase == other.phase for other in modules) == 1
        own, weight = _forward_of(subject, forward, module, alone=alone)
        rows = _for_nothing(backward, forward, own, weight, module)
        gain_ns = int(rows["gain_ns"].sum())
        if 100 * gain_ns >= UNUSED_PCT * int(kernels["ns"].sum()) > 0:
            yield _unused(subject, module, own, rows, weight)


def _unused(
    subject: JudgedReport,
    module: UnusedModule,
    own: pl.DataFrame,
    rows: pl.DataFrame,
    weight: float,
) -> Finding:
    part_of = "by its share of the weights" if weight < 1 else in_words(subject, own)
    gain = duration(subject.worst_ns(rows, "gain_ns"))
    unread = "are cleared unread" if module.thrown else "no optimizer uses"
    does = f"gets gradients that {unread}"
    finding = kernel_finding(
        subject,
        rows,
        rule="unused-gradients",
        title=f"{module.name} {does}",
        change=CHANGE_OF_THROWN if module.thrown else CHANGE_OF_UNUSED,
        evidence=(
            f"it has {module.weights:,} weights"
            + (
                "; their optimizer clears what the pass for another one computes"
                if module.thrown
                else " in no optimizer, and each backward pass adds to their gradients"
            )
            + f" (seen in {module.steps} steps)",
            *_calls(module),
            f"its forward pass: {part_of}; its part of the backward pass is estimated from that",
            f"by estimate, {gain} of the backward pass is for nothing",
        ),
        at=None if weight < 1 else own,
    )
    source = _called_at(subject, module, own)
    if not source:
        return finding
    title = f"{module.name}, called at {source}, {does}"
    return replace(finding, title=title, source=source, via="")


def _called_at(subject: JudgedReport, module: UnusedModule, own: pl.DataFrame) -> str:
    """The program's line that calls the module for most of its kernels, of those whose gradients
    are for nothing if one of these is known; empty where none is known."""
    inside = _frames_of(subject, module).group_by("stack").agg(pl.col("depth").max().alias("of"))
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN).join(inside, on="stack")
    callers = frames.filter(pl.col("depth") > pl.col("of")).sort("stack", "depth")
    callers = callers.unique("stack", keep="first", maintain_order=True)
    if callers.is_empty():
        return ""
    known = _stacks_of(subject, own).to_frame("stack").with_columns(own["ns"])
    lines = known.join(callers, on="stack").group_by(pl.col("line").cast(pl.String)).agg("ns")
    place = pl.col("line").str.extract(r"([^/\\]+:\d+) in ")
    lines = lines.with_columns(pl.col("ns").list.sum(), place.is_in(module.lines).alias("noted"))
    return next(iter(lines.sort("noted", "ns", "line", descending=True)["line"]), "")


def _calls(module: UnusedModule) -> Iterator[str]:
    """How many calls a step has, and what of their backward passes is for nothing."""
    if not module.whole + module.part or not module.steps:
        return  # torch.compile ran it as a part of something else
    calls, whole, part = (
        number(count // module.steps) if count >= module.steps else f"{count / module.steps:.1f}"
        for count in (module.calls, module.whole, module.part)
    )
    parts = [f"in {whole} no input needs a gradient: the whole backward pass is for nothing"] * (
        module.whole > 0
    ) + [
        f"in {part} an input does: only the weights' gradients are, about half of the products"
    ] * (module.part > 0)
    yield f"calls a step: {calls}; {'; '.join(parts)}"


def _forward_of(
    subject: JudgedReport, forward: pl.DataFrame, module: UnusedModule, *, alone: bool
) -> tuple[pl.DataFrame, float]:
    """The kernels of the module's forward pass, and which part of their time is its: by a range of
    its own, by the functions that launched them, else by its share of the weights."""
    attribution = subject.view.attribution
    range_of = rf"(?:^|/){re.escape(module.phase)}(?:/|$)"
    in_range = attribution.paths["joined"].str.contains(range_of)
    paths = attribution.path_of(forward["node"])
    in_phase = forward.filter(pl.lit(in_range[paths]).fill_null(value=False))
    if alone and module.phase not in SHARED_PHASES and len(in_phase):
        return in_phase, 1.0
    if module.places and subject.timeline.launch_stacks is not None:
        stacks = _frames_of(subject, module)["stack"].unique()
        within = _stacks_of(subject, forward).is_in(stacks.implode()).fill_null(value=False)
        if within.any():
            return forward.filter(within), 1.0
    return in_phase, module.weights / module.of if module.of else 0.0


def _stacks_of(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """The stack in which each kernel was launched; null where it is not known."""
    return stacks_at(subject, subject.view.events.ops["call"][kernels["op"]])


def _frames_of(subject: JudgedReport, module: UnusedModule) -> pl.DataFrame:
    """The frames in the `forward` of the module's classes."""
    file = pl.col("file").cast(pl.String).str.extract(r"([^/\\]+)$")
    found = [
        (file == read["file"]) & pl.col("line").is_between(int(read["first"]), int(read["last"]))
        for place in module.places
        if (read := re.fullmatch(r"(?P<file>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", place))
    ]
    return subject.timeline.trace.frames.filter(pl.any_horizontal(pl.lit(value=False), *found))


def _for_nothing(
    backward: pl.DataFrame,
    forward: pl.DataFrame,
    own: pl.DataFrame,
    weight: float,
    module: UnusedModule,
) -> pl.DataFrame:
    """The kernels of the backward pass, with the module's useless part of each as `gain_ns`: of
    products, and of all others, it has the share that it has in the forward pass. Of products it
    has at least twice the time that they take there, as some of that may have no backward pass."""
    calls = module.calls or 1
    whole = min(1.0, module.whole / calls)
    part = min(1.0 - whole, module.part / calls) if module.whole + module.part else 1.0
    product = pl.col("class").is_in([*MATRIX_CLASSES])
    shares = [
        weight * int(own.filter(kind)["ns"].sum()) / max(1, int(forward.filter(kind)["ns"].sum()))
        for kind in (product, ~product)
    ]
    twice_ns = PRODUCTS * weight * int(own.filter(product)["ns"].sum())
    shares[0] = min(
        1.0, max(shares[0], twice_ns / max(1, int(backward.filter(product)["ns"].sum())))
    )
    sums_up = pl.col("class") == "reduction"  # gradients of biases
    gain = (
        pl.when(product)
        .then(shares[0] * (whole + OF_WEIGHTS * part))
        .when(sums_up)
        .then(shares[1] * (whole + part))
        .otherwise(shares[1] * whole)
    )
    rows = backward.with_columns((pl.col("ns") * gain).cast(pl.Int64).alias("gain_ns"))
    return rows.filter(pl.col("gain_ns") > 0)


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
