"""What a program was seen to do with modules.

No recording tells that: our runtime looked at some steps (spec §12.13 to §12.16, §12.19).

* `unused-gradients`: weights get gradients that no optimizer uses.
* `repeated-call`: a module is called again with the very same input within a step.
* `padding`: much of what a model is given only fills rows up.
* `unchanged-call`: a module computes in each step what it computed in the step before.
* `masked-rows`: a part of what modules compute is multiplied by zero.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.rules.module_kernels import (
    SeenKernels,
    at_its_line,
    called_at,
    products_of_layer,
    seen_kernels,
)
from nsysflow.analysis.observed import (
    MaskedModule,
    PaddedModule,
    RepeatedModule,
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

ONLY_READ: Final = r"(?i)target|teacher"
"""Names of networks, or of functions that call them, of which only the output is wanted."""

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

MASKED_PCT: Final = 5.0
"""Less of the kernel time is not worth another form of the program."""

CHANGE_OF_MASKED: Final = (
    "choose the rows first, and compute only these: x.index_add(0, rows, module(x[rows]))",
    "a mixture of experts: sort tokens by expert and read the counts once, then give each expert"
    " its rows: a nonzero or x[mask] for each expert waits for the GPU each time",
    "masked positions: put rows of similar length into one batch, or pack them end to end",
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


def unused_gradients(subject: JudgedReport) -> Iterator[Finding]:
    """The part of the backward pass that computes gradients which no optimizer uses.

    Super-resolution with a VGG as its loss took 32.4 ms a step, and 22.9 once the VGG's weights
    required no gradients (H200, 2026-11-30).
    """
    for seen in seen_kernels(subject, UnusedModule):
        rows = seen.in_backward(*_for_nothing(seen.module))
        if seen.share_pct(rows) >= UNUSED_PCT:
            yield _unused(subject, seen, rows)


def _unused(subject: JudgedReport, seen: SeenKernels[UnusedModule], rows: pl.DataFrame) -> Finding:
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
    source = called_at(subject, module, seen.own)
    if not module.thrown and re.search(ONLY_READ, f"{module.name} {source}"):
        finding = replace(finding, change=CHANGE_OF_UNUSED[::-1])
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
    for seen in seen_kernels(subject, RepeatedModule):
        module = seen.module
        if not 0 < module.repeated <= module.calls:
            continue
        learning = min(module.learning, module.repeated) / module.calls
        again = seen.in_forward(module.repeated / module.calls)
        rows = pl.concat([again, seen.in_backward(learning)])
        if seen.share_pct(rows) >= REPEATED_PCT:
            yield _repeated(subject, seen, rows)


def _repeated(
    subject: JudgedReport, seen: SeenKernels[RepeatedModule], rows: pl.DataFrame
) -> Finding:
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
    finding = at_its_line(subject, finding, seen, title)
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
    for seen in seen_kernels(subject, UnchangedModule):
        module = seen.module
        own = seen.own if module.places else products_of_layer(seen)
        rows = replace(seen, own=own).in_forward(1)
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
        finding = at_its_line(subject, finding, seen, title)
        yield counting_launches(subject, finding, rows["op"], shares=rows["gain_ns"] / rows["ns"])


def padding(subject: JudgedReport) -> Iterator[Finding]:
    """What a model computes for positions that only fill rows up.

    A server that made batches in the order of arrival had two thirds of padding and took 26.8 ms,
    and 18.9 with batches of like length (H200, 2026-11-30).
    """
    for seen in seen_kernels(subject, PaddedModule):
        module = seen.module
        if not 0 < module.padding <= module.positions:
            continue
        share = module.padding / module.positions
        of_pairs = 1 - min(module.of_tokens, module.pairs) / max(1, module.pairs)
        rows = pl.concat([seen.in_forward(share), seen.in_backward(share)])
        more = pl.when(pl.col("class") == "attention").then(max(1.0, of_pairs / share)).otherwise(1)
        gain = pl.min_horizontal(pl.col("gain_ns") * more, "ns").cast(pl.Int64)
        rows = rows.with_columns(gain.alias("gain_ns"))
        if seen.share_pct(rows) >= PADDING_PCT:
            yield _padded(subject, seen, rows)


def _padded(subject: JudgedReport, seen: SeenKernels[PaddedModule], rows: pl.DataFrame) -> Finding:
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
    return at_its_line(subject, finding, seen, title)


def masked_rows(subject: JudgedReport) -> Iterator[Finding]:
    """What modules compute for rows that are multiplied by zero, with their part of the backward
    pass."""
    for seen in seen_kernels(subject, MaskedModule):
        module, share = seen.module, seen.module.masked_share
        rows = pl.concat([seen.in_forward(share), seen.in_backward(share)])
        if seen.share_pct(rows) < MASKED_PCT:
            continue
        finding = kernel_finding(
            subject,
            rows,
            rule="masked-rows",
            title=module.text,
            change=CHANGE_OF_MASKED,
            evidence=(
                f"the results of {number(module.calls)} calls are multiplied by one number for each"
                f" row (seen in {module.steps} steps)",
                "which rows become zero was known before they were computed",
                f"its forward pass: {seen.in_words(subject)}",
            ),
            at=seen.known,
        )
        yield at_its_line(subject, finding, seen, module.text)
