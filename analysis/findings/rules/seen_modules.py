"""What a program was seen to do with modules.

No recording tells that: our runtime looked at a few steps of the program (spec §12.13 to §12.16).

* `unused-gradients`: weights get gradients that no optimizer uses.
* `repeated-call`: a module is called again with the very same input within a step.
* `padding`: much of what a model is given only fills rows up.
* `unchanged-call`: a module computes in each step what it computed in the step before.
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
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, kernels_by_pass
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.trace import (
    Module,
    PaddedModule,
    RepeatedModule,
    SeenModule,
    UnchangedModule,
    UnusedModule,
)
from nsysflow.base.units import duration, number, percent

UNUSED_PCT: Final = 1.0
"""Less of the kernel time is not worth a line."""

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


REPEATED_PCT: Final = 2.0
"""Less of the kernel time is not worth a line."""

CHANGE_OF_REPEATED: Final = (
    "call it once, and hand the result to all that need it: h = encoder(x); actor(h), critic(h)",
    "where methods call it themselves: give them h as an argument, or let one method return both",
)

CHANGE_OF_LEARNING: Final = (
    "several losses of one result: add them up, so that one backward pass serves them all"
)


CHANGE_OF_UNCHANGED: Final = (
    "compute it once before the loop, and keep the result",
    "cross-attention: keys and values once per encoded input; a prompt: its embedding once",
)

PADDING_PCT: Final = 10.0
"""Less of the kernel time is not worth a line."""

OF_FIXED_LENGTH: Final = (
    "pad each batch to its longest row, not to a fixed length: tokenizer(..., padding=True)"
)

IN_ORDER: Final = (
    "put rows of similar length into one batch: sort waiting requests by length; in training sort"
    " windows of some hundred shuffled samples, and shuffle the batches"
)

PACKED: Final = (
    "or pack rows end to end: varlen_attn or nested tensors (PyTorch), flash_attn_varlen_func,"
    " DataCollatorWithFlattening (transformers)",
    "with torch.compile or CUDA graphs: round lengths up to multiples of 64, for few shapes",
)


MOST: Final = 0.5
"""Of kernels of a layer's name and grid, more than this share are launched by its lines."""

OF_WEIGHTS: Final = 0.5
"""A product has two gradients, that of its weights and that of its input."""

TWICE: Final = 2
"""Both of them together take as long as two such products of the forward pass, or longer."""

SHARED_PHASES: Final = ("forward", "eval")
"""Ranges of models; others are of one class."""


@dataclass(frozen=True, kw_only=True)
class _Seen(Generic[Module]):
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


def _seen(subject: JudgedReport, kind: type[Module]) -> Iterator[_Seen[Module]]:
    """The modules of a kind; none where no steps are judged."""
    modules = subject.timeline.trace.observations(kind)
    if not modules or not subject.of_steps:
        return
    kernels = kernels_by_pass(subject)
    forward = kernels.filter(~pl.col("backward"), pl.col("class") != "optimizer")
    for module in modules:
        alone = sum(module.phase == other.phase for other in modules) == 1
        own, weight = _forward_of(subject, forward, module, alone=alone)
        yield _Seen(
            module=module,
            kernels=kernels,
            forward=forward,
            backward=kernels.filter("backward"),
            own=own,
            weight=weight,
        )


def unused_gradients(subject: JudgedReport) -> Iterator[Finding]:
    """The part of the backward pass that computes gradients which no optimizer uses.

    Super-resolution with a VGG as its loss took 32.4 ms a step, and 22.9 once the VGG's weights
    required no gradients (H200, 2026-11-30).
    """
    for seen in _seen(subject, UnusedModule):
        rows = seen.in_backward(*_for_nothing(seen.module))
        if seen.share_pct(rows) >= UNUSED_PCT:
            yield _unused(subject, seen, rows)


def _unused(subject: JudgedReport, seen: "_Seen[UnusedModule]", rows: pl.DataFrame) -> Finding:
    module = seen.module
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
            f"its forward pass: {seen.in_words(subject)}; its part of the backward pass is"
            " estimated from that",
            f"by estimate, {gain} of the backward pass is for nothing",
        ),
        at=seen.known,
    )
    source = _called_at(subject, module, seen.own)
    if not source:
        return finding
    title = f"{module.name}, called at {source}, {does}"
    return replace(finding, title=title, source=source, via="")


def _for_nothing(module: UnusedModule) -> tuple[float, float]:
    """Of which share of its calls all of the backward pass is for nothing, and of which only the
    gradients of weights are."""
    calls = module.calls or 1
    whole = min(1.0, module.whole / calls)
    part = min(1.0 - whole, module.part / calls) if module.whole + module.part else 1.0
    return whole, part


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


def repeated_call(subject: JudgedReport) -> Iterator[Finding]:
    """Calls of a module that compute what another call of their step has computed.

    PPO whose actor and critic each ran their encoder took 77 ms an iteration, and 67 with one call
    of it for both (H200, 2026-11-30).
    """
    for seen in _seen(subject, RepeatedModule):
        module = seen.module
        if not 0 < module.repeated <= module.calls:
            continue
        again = seen.weight * module.repeated / module.calls
        gain = (pl.col("ns") * again).cast(pl.Int64).alias("gain_ns")
        own = seen.own.with_columns(gain).filter(pl.col("gain_ns") > 0)
        learning = min(module.learning, module.repeated) / module.calls
        rows = pl.concat([own, seen.in_backward(learning)])
        if seen.share_pct(rows) >= REPEATED_PCT:
            yield _repeated(subject, seen, rows)


def _repeated(subject: JudgedReport, seen: "_Seen[RepeatedModule]", rows: pl.DataFrame) -> Finding:
    module = seen.module
    behind_ns = subject.worst_ns(rows.filter("backward"), "gain_ns")
    behind = f"; by estimate, {duration(behind_ns)} of the backward pass is of repeated calls"
    title = f"{module.name} is called {_times(module)} with the same input"
    finding = kernel_finding(
        subject,
        rows,
        rule="repeated-call",
        title=title,
        change=(*CHANGE_OF_REPEATED, *([CHANGE_OF_LEARNING] if module.learning else [])),
        evidence=(
            f"{number(module.repeated)} of {number(module.calls)} calls repeat another one of their"
            f" step: the same tensors, unchanged, in the same modes (seen in {module.steps} steps)",
            *([f"the calls come through {' and '.join(module.ways)}"] if module.ways else []),
            f"its forward pass: {seen.in_words(subject)}{behind if behind_ns else ''}",
        ),
        at=seen.known,
    )
    finding = _at_its_line(subject, finding, seen, title)
    return counting_launches(subject, finding, rows["op"], shares=rows["gain_ns"] / rows["ns"])


def _times(module: RepeatedModule) -> str:
    """`twice`, where each call is repeated once."""
    first = module.calls - module.repeated
    if first <= 0 or module.calls % first:
        return "again"
    times = module.calls // first
    return "twice" if times == 2 else f"{number(times)} times"


def unchanged_call(subject: JudgedReport) -> Iterator[Finding]:
    """Calls without gradients that compute what the same ones computed in the step before.

    A decoder of speech that projected the encoded audio again for each token took 8.13 ms a token,
    and 3.65 once it kept the result (H200, 2026-11-30).
    """
    for seen in _seen(subject, UnchangedModule):
        module = seen.module
        own = seen.own if module.places else _products_of_layer(seen)
        rows = own.with_columns((pl.col("ns") * seen.weight).cast(pl.Int64).alias("gain_ns"))
        rows = rows.filter(pl.col("gain_ns") > 0)
        if seen.share_pct(rows) < REPEATED_PCT:
            continue
        title = f"{module.name} computes the same result in every step"
        products = percent(100 * module.share)
        finding = kernel_finding(
            subject,
            rows,
            rule="unchanged-call",
            title=title,
            change=CHANGE_OF_UNCHANGED,
            evidence=(
                f"{number(module.calls)} calls get the same input as in the step before: the same"
                f" tensors, unchanged (seen in {module.steps} steps)",
                f"they do {products} of the multiplications in linear layers and convolutions",
                *([in_words(subject, rows)] if seen.known is not None else []),
            ),
            at=None if seen.known is None else rows,
        )
        finding = _at_its_line(subject, finding, seen, title)
        yield counting_launches(subject, finding, rows["op"], shares=rows["gain_ns"] / rows["ns"])


def _products_of_layer(seen: "_Seen[UnchangedModule]") -> pl.DataFrame:
    """The products of a linear layer or a convolution. Stacks of launches are estimated from
    samples, so all products of a name and grid are its own if most of them are."""
    products = seen.forward.filter(pl.col("class").is_in(["matmul", "conv"]))
    own = pl.col("op").is_in(seen.own["op"].implode())
    if seen.known is None:
        return products.filter(own)
    return products.filter(own | (own.mean() > MOST).over("key"))


def _at_its_line(
    subject: JudgedReport, finding: Finding, seen: "_Seen[Module]", title: str
) -> Finding:
    """The finding, with the line that calls the module behind its title if that is known."""
    source = _called_at(subject, seen.module, seen.own)
    if not source:
        return finding
    return replace(finding, title=f"{title}: {source}", source=source, via="")


def padding(subject: JudgedReport) -> Iterator[Finding]:
    """What a model computes for positions that only fill rows up.

    A server that made batches in the order of arrival had two thirds of padding and took 26.8 ms,
    and 18.9 with batches of like length (H200, 2026-11-30).
    """
    for seen in _seen(subject, PaddedModule):
        module = seen.module
        if not 0 < module.padding <= module.positions:
            continue
        share = module.padding / module.positions
        of_pairs = 1 - min(module.of_tokens, module.pairs) / max(1, module.pairs)
        own = seen.own.with_columns((pl.col("ns") * seen.weight * share).alias("gain_ns"))
        rows = pl.concat([own, seen.in_backward(share)], how="vertical_relaxed")
        more = pl.when(pl.col("class") == "attention").then(max(1.0, of_pairs / share)).otherwise(1)
        gain = pl.min_horizontal(pl.col("gain_ns") * more, "ns").cast(pl.Int64)
        rows = rows.with_columns(gain.alias("gain_ns")).filter(pl.col("gain_ns") > 0)
        if seen.share_pct(rows) >= PADDING_PCT:
            yield _padded(subject, seen, rows)


def _padded(subject: JudgedReport, seen: "_Seen[PaddedModule]", rows: pl.DataFrame) -> Finding:
    module = seen.module
    tokens = module.positions - module.padding
    share, behind = (
        percent(100 * part / module.positions) for part in (module.padding, module.behind)
    )
    in_order = percent(100 * module.in_order / max(1, tokens + module.in_order))
    fixed = 10 * module.behind >= module.positions
    title = f"{share} of {module.name}'s input is padding"
    finding = kernel_finding(
        subject,
        rows,
        rule="padding",
        title=title,
        change=(*([OF_FIXED_LENGTH] if fixed else []), IN_ORDER, *PACKED),
        evidence=(
            f"{number(module.padding)} of {number(module.positions)} positions in"
            f" {number(module.calls)} calls are padding: the value at most rows' end or beginning",
            *([f"{behind} of all positions lie behind a batch's longest row"] if fixed else []),
            f"with rows of similar length in each batch, {in_order} would be padding",
            f"its forward pass: {seen.in_words(subject)}",
        ),
        at=seen.known,
    )
    return _at_its_line(subject, finding, seen, title)


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


def _called_at(subject: JudgedReport, module: SeenModule, own: pl.DataFrame) -> str:
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
