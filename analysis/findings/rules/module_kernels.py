"""The kernels of what a program was seen to do (spec §16.34).

A module has those in the range of its calls, else those that its lines launched, else its share of
those in the range of the module around it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic

import polars as pl

from nsysflow.analysis.events.source_lines import OWN
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.host_functions import frames_of_code, stacks_at
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernels_by_pass
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.observed import Module, SeenModule, UnusedModule

MOST: Final = 0.5
"""Of kernels of a layer's name and grid, more than this share are launched by its lines."""

OF_WEIGHTS: Final = 0.5
"""A product has two gradients, that of its weights and that of its input."""

TWICE: Final = 2
"""Both of them together take as long as two such products of the forward pass, or longer."""

SHARED_PHASES: Final = ("forward", "eval")
"""Ranges of models; others are of one class."""


@dataclass(frozen=True, kw_only=True)
class SeenKernels(Generic[Module]):
    """A module that was seen, and kernels.

    Attributes:
        module: which one.
        kernels: all of them.
        forward: those of the forward pass.
        backward: those of the backward pass.
        own: the module's in the forward pass, …
        weight: … and which part of their time is its.
    """

    module: Module
    kernels: pl.DataFrame
    forward: pl.DataFrame
    backward: pl.DataFrame
    own: pl.DataFrame
    weight: float

    @property
    def known(self) -> pl.DataFrame | None:
        """Its kernels in the forward pass; None where only their share is known."""
        return None if self.weight < 1 else self.own

    def in_words(self, subject: JudgedReport) -> str:
        """The same."""
        known = self.known
        return "by its share of the weights" if known is None else in_words(subject, known)

    def share_pct(self, rows: pl.DataFrame) -> float:
        """What these rows gain of the time of all kernels, in percent."""
        return 100 * int(rows["gain_ns"].sum()) / max(1, int(self.kernels["ns"].sum()))

    def in_forward(self, share: float) -> pl.DataFrame:
        """Its kernels in the forward pass, with this share of their time as `gain_ns`."""
        gain = (pl.col("ns") * self.weight * share).cast(pl.Int64)
        return self.own.with_columns(gain.alias("gain_ns")).filter(pl.col("gain_ns") > 0)

    def in_backward(self, whole: float, part: float = 0.0) -> pl.DataFrame:
        """The kernels of the backward pass, with what the module has of each as `gain_ns`: of
        products, and of all others, it has the share that it has in the forward pass. Of products
        it has at least twice the time that they take there, as some of that may have no backward
        pass.

        Args:
            whole: the share of its calls whose whole backward pass counts.
            part: that of calls of which only the gradients of weights count.
        """
        product = pl.col("class").is_in([*MATRIX_CLASSES])
        own_ns, forward_ns, backward_ns = (
            [int(kernels.filter(kind)["ns"].sum()) for kind in (product, ~product)]
            for kernels in (self.own, self.forward, self.backward)
        )
        shares = [
            self.weight * one / max(1, all_ns)
            for one, all_ns in zip(own_ns, forward_ns, strict=True)
        ]
        of_backward = TWICE * self.weight * own_ns[0] / max(1, backward_ns[0])
        shares[0] = min(1.0, max(shares[0], of_backward))
        sums_up = pl.col("class") == "reduction"  # gradients of biases
        gain = (
            pl.when(product)
            .then(shares[0] * (whole + OF_WEIGHTS * part))
            .when(sums_up)
            .then(shares[1] * (whole + part))
            .otherwise(shares[1] * whole)
        )
        rows = self.backward.with_columns((pl.col("ns") * gain).cast(pl.Int64).alias("gain_ns"))
        return rows.filter(pl.col("gain_ns") > 0)


def seen_kernels(subject: JudgedReport, kind: type[Module]) -> Iterator[SeenKernels[Module]]:
    """The modules of a kind; none where no steps are judged."""
    modules = subject.timeline.trace.observations(kind)
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    for module in modules:
        alone = module.is_whole and sum(module.phase == other.phase for other in modules) == 1
        own, weight = _forward_of(subject, forward, module, alone=alone)
        yield SeenKernels(
            module=module,
            kernels=kernels,
            forward=forward,
            backward=kernels.filter("backward"),
            own=own,
            weight=weight,
        )


def products_of_layer(seen: SeenKernels[Module]) -> pl.DataFrame:
    """The products of a linear layer or a convolution. Stacks of launches are estimated from
    samples, so all products of a name and grid are its own if most of them are."""
    products = seen.forward.filter(pl.col("class").is_in(["matmul", "conv"]))
    own = pl.col("op").is_in(seen.own["op"].implode())
    if seen.known is None:
        return products.filter(own)
    return products.filter(own | (own.mean() > MOST).over("key"))


def at_its_line(
    subject: JudgedReport, finding: Finding, seen: SeenKernels[Module], title: str
) -> Finding:
    """The finding, with the line that calls the module behind its title if that is known."""
    source = called_at(subject, seen.module, seen.own)
    if not source:
        return finding
    return replace(finding, title=f"{title}: {source}", source=source, via="")


def _forward_of(
    subject: JudgedReport, forward: pl.DataFrame, module: SeenModule, *, alone: bool
) -> tuple[pl.DataFrame, float]:
    """The kernels of a module's forward pass, and which part of their time is its: by a range of
    its own, by the functions that launched them, else by its share of the weights.

    Args:
        subject: the judged part.
        forward: the kernels of all forward passes.
        module: which one.
        alone: whether all calls in ranges of its phase are of it.
    """
    attribution = subject.view.attribution
    range_of = rf"(?:^|/){re.escape(module.phase)}(?:/|$)"
    in_range = attribution.paths["joined"].str.contains(range_of)
    paths = attribution.path_of(forward["node"])
    in_phase = forward.filter(pl.lit(in_range[paths]).fill_null(value=False))
    if alone and module.phase not in SHARED_PHASES and len(in_phase):
        return in_phase, 1.0
    if _places_of(module) and subject.timeline.launch_stacks is not None:
        stacks = _frames_of(subject, module)["stack"].unique()
        within = _stacks_of(subject, forward).is_in(stacks.implode()).fill_null(value=False)
        if within.any():
            return forward.filter(within), 1.0
    return in_phase, min(1.0, module.share)


def _stacks_of(subject: JudgedReport, kernels: pl.DataFrame) -> pl.Series:
    """The stack in which each kernel was launched; null where it is not known."""
    return stacks_at(subject, subject.view.events.ops["call"][kernels["op"]])


def _places_of(module: SeenModule) -> Sequence[str]:
    """The lines of its `forward`; where torch has that, those that call it."""
    if module.places or isinstance(module, UnusedModule):
        return module.places
    return [re.sub(r":(\d+)$", r":\1-\1", line) for line in module.lines]


def _frames_of(subject: JudgedReport, module: SeenModule) -> pl.DataFrame:
    """The frames in these lines."""
    file = pl.col("file").cast(pl.String).str.extract(r"([^/\\]+)$")
    found = [
        (file == read["file"]) & pl.col("line").is_between(int(read["first"]), int(read["last"]))
        for place in _places_of(module)
        if (read := re.fullmatch(r"(?P<file>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", place))
    ]
    return subject.timeline.trace.frames.filter(pl.any_horizontal(pl.lit(value=False), *found))


def called_at(subject: JudgedReport, module: SeenModule, own: pl.DataFrame) -> str:
    """The program's line that calls a module for most of its kernels, of those that were noted if
    one of these is known; empty where none is known."""
    inside = _frames_of(subject, module).group_by("stack").agg(pl.col("depth").max().alias("of"))
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN).join(inside, on="stack")
    outside = 1 if module.places else 0  # a line that calls it is where it is
    callers = frames.filter(pl.col("depth") >= pl.col("of") + outside).sort("stack", "depth")
    callers = callers.unique("stack", keep="first", maintain_order=True)
    if callers.is_empty():
        return ""
    known = _stacks_of(subject, own).to_frame("stack").with_columns(own["ns"])
    lines = known.join(callers, on="stack").group_by(pl.col("line").cast(pl.String)).agg("ns")
    place = pl.col("line").str.extract(r"([^/\\]+:\d+) in ")
    noted = place.is_in(module.lines).fill_null(value=False).alias("noted")
    lines = lines.with_columns(pl.col("ns").list.sum(), noted)
    return next(iter(lines.sort("noted", "ns", "line", descending=True)["line"]), "")
