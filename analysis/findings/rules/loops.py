"""Python loops that launch a few small kernels in each pass: the GPU waits before each.

* `loop-of-launches`: an update of moving averages, an optimizer written by hand, a loss computed
  image by image, a sum over time, a recurrent cell for each token.
* `attention-in-turn`: attention called for one head or sequence after another.
* `expert-loop`: the experts of a layer run one at a time, each with a wait for its rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.findings.backward import BACKWARD
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import called_from, launched_in, running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import phase_of, scaled
from nsysflow.analysis.findings.kernels import TINY_NS
from nsysflow.analysis.findings.launches import host_of_launches, itself, without_launches
from nsysflow.analysis.findings.repeated import (
    ALIKE,
    KINDS,
    LONGEST_PASS,
    PASSES,
    Kind,
    backward_of,
    is_call_of_attention,
    passes_of,
    with_passes,
)
from nsysflow.analysis.findings.rules.fusion import gain_as_few
from nsysflow.analysis.findings.rules.launch_bound import launches_cost
from nsysflow.analysis.findings.stall_findings import Stalls, places_of
from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.schema import grid_as_text
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number

MANY_LAUNCHES: Final = 100
"""So many kernels a step are a loop: five for each of 20 tensors. It is no finding if it also waits
for one in ten of them, or in every other pass, for example to read a value: then the wait has to go
first."""

MOST_PCT: Final = 75
"""A step that is such a loop and little else is launch-bound as a whole: a larger share of its
kernels is a loop only if it launches `MANY_LAUNCHES` others, too."""

SIMPLE_PCT: Final = 95
"""So many of the kernels of a phase that is a loop must be simple ones."""

CHANGE_OF_LOOP: Final = (
    "one call for all tensors, such as torch._foreach_lerp_, or a fused optimizer",
    "stack the tensors, and compute all of them at once",
    "torch.compile the function: it unrolls the loop and fuses its kernels",
)
CHANGE_OF_PASSES: Final = (
    "one call for all passes, or torch.compile the function if each pass needs the one before",
    "stack what the passes take, with a dimension more; a scan such as torch.cumsum over time",
)
CHANGE_OF_CELLS: Final = (
    "nn.LSTM or nn.GRU over the whole sequence, not a cell for each step: one call of cuDNN",
    "where a cell needs what the one before put out, as in sampling: torch.compile the loop",
)
CHANGE_OF_HEADS: Final = (
    "one product makes query, key and value of all heads, and one call takes them as a dimension",
    "stack the tensors of all calls into one batch",
)
CHANGE_OF_SEQUENCES: Final = (
    "one call for all: pad them with a mask, or pack them: flash_attn_varlen_func, flex_attention",
    "stack calls of the same size into one batch",
)
CHANGE_OF_TABLES: Final = (
    "one embedding with the rows of all tables: look up code + the column's offset",
    "of many large tables: one batched embedding for all, such as torchrec's",
)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop of launches.

    Attributes:
        phase: the phase that launches it; `OUTSIDE` where no range is open.
        kind: which kernels are in its passes.
        kernels: what it launches, rows of `with_passes`.
        backward: what its backward pass launches, likewise.
        whole: whether the phase launches nothing else.
    """

    phase: str
    kind: Kind
    kernels: pl.DataFrame
    backward: pl.DataFrame
    whole: bool


def loop_of_launches(subject: JudgedReport) -> Iterator[Finding]:
    """The loops of a program whose GPU waits for launches: one for each phase and kind, and those
    of the code outside all phases. What their backward passes repeat counts as theirs.

    Two LSTMCells for each of 64 tokens took 70.5 ms a step, and 37.8 with one nn.LSTM of two layers
    (H200, 2026-11-30).
    """
    yield from _findings(subject, ("simple", "cells"), rule="loop-of-launches")


def attention_in_turn(subject: JudgedReport) -> Iterator[Finding]:
    """Calls of attention that follow each other, each with products of its own: a finding for each
    phase.

    Six heads, each with three products and a call, took 61.2 ms a step in eight layers, and 17.0
    with one product and one call a layer (H200, 2026-11-30).
    """
    yield from _findings(subject, ("attention",), rule="attention-in-turn")


def _findings(subject: JudgedReport, kinds: tuple[Kind, ...], *, rule: str) -> Iterator[Finding]:
    """The findings of loops of these kinds, where the GPU waits for launches."""
    if subject.of_steps and launches_cost(subject):
        yield from (_finding(subject, loop, rule) for loop in loops(subject) if loop.kind in kinds)


def _finding(subject: JudgedReport, loop: Loop, rule: str) -> Finding:
    phase, kernels, backward = loop.phase, loop.kernels, loop.backward
    count, more = (number(subject.per_step(len(rows))) for rows in (kernels, backward))
    phases = [phase, *backward["phase"].unique()]
    waits = pl.col("phase").is_in(phases) & ~(pl.col("data") | pl.col("loads_code"))
    pauses = subject.pauses.filter(waits)
    every = pl.concat([kernels, backward])
    host = host_of_launches(subject, (backward if loop.whole else every)["op"])
    few = every if loop.kind == "simple" else every.filter("simple")
    changes = Changes.together(
        [
            Changes(graphs=(itself(subject, phase),) * loop.whole),
            without_launches(subject, host),
            Changes(scaled=scaled(subject.kernels, few.with_columns(gain_as_few()))),
        ]
    )
    ran = running(subject, phase)
    outside = phase == OUTSIDE
    spot = (called_from if loop.kind == "attention" else launched_in)(subject, kernels["op"])
    mostly, source = (ran.mostly, ran.source) if loop.whole else (spot.code, spot.source)
    code = f": {mostly}" if mostly else f", most in {ran.most}" if ran.most else ""
    where = "" if mostly and outside else place(phase)
    repeats = f", {more} more in backward" if len(backward) else ""
    names = kernels["name"].n_unique()
    size_ns = subject.worst_ns(pauses, "ns")
    if not loop.whole:
        size_ns = min(size_ns, subject.per_step(int(host["own_ns"].sum())))
    return Finding(
        rule=rule,
        title=f"{_what(subject, loop)}{where}{repeats}{code}",
        change=_change(subject, loop),
        evidence=(
            f"{count} kernels a step, {f'{names:,} different ones' if names > 1 else 'all alike'},"
            f" {duration(kernels.select(median_ns(pl.col('ns'))).item())} each",
            f"the GPU waits {subject.spent(size_ns)} for these launches and the code between them",
            *ran.evidence,
        ),
        table="host_stacks" if ran.evidence else "launches",
        size_ns=size_ns,
        steps=subject.steps_with(pauses["start_ns"]),
        changes=changes,
        exact=False,
        process=subject.process_of(pauses),
        phase="" if outside else phase,
        source=source,
    )


def _what(subject: JudgedReport, loop: Loop) -> str:
    """How a title begins: what it launches, and how often."""
    count = number(subject.per_step(len(loop.kernels)))
    if loop.kind != "attention":
        return f"a loop launches {count} small kernels a step"
    calls = int(loop.kernels.select(is_call_of_attention()).to_series().sum())
    in_a_row = round(calls / loop.kernels["row"].n_unique())
    times = f"{number(subject.per_step(calls))} times a step, {in_a_row} in a row"
    return f"attention is called {times}, with {count} kernels"


def loops(subject: JudgedReport) -> tuple[Loop, ...]:
    """The loops of launches, by phase."""
    return kept_with(subject, "loops of launches", lambda: tuple(_loops(subject)))


def _loops(subject: JudgedReport) -> Iterator[Loop]:
    """Phases that launch many kernels, of few kinds, all simple, or many in passes of a loop and
    of its backward pass; that seldom wait there, and are no backward pass: autograd repeats there
    what the forward pass did, and the loop to change is not in it."""
    kernels = with_passes(subject)
    stalls = dict(subject.stalls.group_by("phase").len().iter_rows())
    forward = kernels.filter(~pl.col("phase").str.contains(BACKWARD))
    for (phase,), rows in sorted(forward.group_by("phase"), key=lambda group: str(group[0])):
        same = rows["name"].n_unique() * PASSES <= subject.per_step(len(rows))
        simple = 100 * int(rows["simple"].sum()) >= SIMPLE_PCT * len(rows)
        whole = same and simple
        known = rows["kind"].unique()
        for kind in KINDS[:1] if whole else (kind for kind in KINDS if kind in known):
            looped = rows if whole else rows.filter(pl.col("kind") == kind)
            passes = passes_of(subject, looped)
            backward = backward_of(subject, passes, kind)
            count = subject.per_step(len(looped) + len(backward))
            others = subject.per_step(len(kernels) - len(looped))
            part = 100 * len(looped) < MOST_PCT * len(kernels) or others >= MANY_LAUNCHES
            waits = stalls.get("" if phase == OUTSIDE else phase, 0)
            often = waits * PASSES >= len(looped)
            in_passes = 0 < passes * subject.steps <= 2 * waits
            if count >= MANY_LAUNCHES and part and not often and not in_passes:
                yield Loop(
                    phase=str(phase), kind=kind, kernels=looped, backward=backward, whole=whole
                )


def _change(subject: JudgedReport, loop: Loop) -> tuple[str, ...]:
    """What to do about a loop."""
    kernels = loop.kernels
    if loop.kind == "cells":
        return CHANGE_OF_CELLS
    if loop.kind == "attention":
        calls = kernels.filter(pl.col("class") == "attention")
        return CHANGE_OF_HEADS if _passes_alike(subject, calls) else CHANGE_OF_SEQUENCES
    tables = pl.concat([kernels, loop.backward]).filter(pl.col("class") == "embedding")
    if len(tables) >= passes_of(subject, kernels) * subject.steps > 0:
        return CHANGE_OF_TABLES
    return CHANGE_OF_PASSES if _passes_alike(subject, kernels) else CHANGE_OF_LOOP


def _passes_alike(subject: JudgedReport, kernels: pl.DataFrame) -> bool:
    """Whether each pass of a loop launches the same kernels with the same grids, as one over time
    steps does, up to a tenth; parameters differ in size."""
    names = kernels["name"].cast(pl.String)
    grids = subject.grids.select(grid_as_text().gather(kernels["detail"])).to_series()
    for kernels_of_pass in range(1, min(LONGEST_PASS, len(names) // 2) + 1):
        same = names == names.shift(kernels_of_pass)
        if int(same.sum()) >= ALIKE * len(names):
            return int((same & (grids == grids.shift(kernels_of_pass))).sum()) >= ALIKE * len(names)
    return False


CHANGE_OF_EXPERTS: Final = (
    "sort the rows by expert once, then one F.grouped_mm for all experts; counts stay on the GPU",
    "before PyTorch 2.10 torch._grouped_mm; where neither fits (dtype, GPU), pad each expert to the"
    " same number of rows: one torch.bmm for all",
    "Hugging Face: from_pretrained(..., experts_implementation='grouped_mm')",
)

NO_GRAPH: Final = (
    "while the loop waits for the GPU, no CUDA graph can hold it, and compiled code breaks"
)


def expert_loop(subject: JudgedReport) -> Iterator[Finding]:
    """The loops over experts: their waits, their launches, and their kernels, of which few are left
    where all experts run at once. Products take as long as they do; how much faster one for all
    experts is, no trace tells."""
    loop = subject.experts
    if not loop.passes:
        return
    waits = places_of(subject, subject.stalls_of_experts)
    every = pl.concat([loop.kernels, loop.backward])
    small = every.filter(pl.col("class") != "matmul", pl.col("ns") < TINY_NS)
    small = small.with_columns(gain_as_few())
    host = host_of_launches(subject, every["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    blocked_ns, idle_ns = (sum(one.blocked_ns for one in waits), sum(one.idle_ns for one in waits))
    removed = Changes(removed=tuple(removal for one in waits for removal in one.removals))
    changes = [removed, without_launches(subject, host)]
    source, via = _line_of(waits)
    spot = launched_in(subject, loop.kernels["op"])
    phase = phase_of(subject, loop.kernels.with_columns(gain_ns="ns"))
    passes, a_step = number(subject.per_step(loop.passes)), subject.a_step
    forward, backward = (len(rows) / loop.passes for rows in (loop.kernels, loop.backward))
    at = (
        place(phase, line(source, via))
        if phase or source or via
        else f" in {spot.code}" * bool(spot.source)
    )
    counted = f"{forward:.0f} kernels" + (f", and {backward:.0f} in backward" if backward else "")
    yield Finding(
        rule="expert-loop",
        title=f"experts run one at a time: {passes} passes{a_step}{at}",
        change=CHANGE_OF_EXPERTS,
        evidence=(
            "each pass lists the rows of one expert (nonzero), picks and multiplies them, and puts"
            " them back",
            f"each pass launches {counted}; launches and the code before them take the host"
            f" {subject.spent(own_ns)} in all",
            f"each pass waits for the number of rows, {subject.spent(blocked_ns)} in all;"
            f" {subject.idle(idle_ns)} behind these waits",
            NO_GRAPH,
        ),
        table="launches",
        size_ns=own_ns + idle_ns,
        steps=min(subject.steps, subject.steps_with(loop.kernels["start_ns"])),
        changes=Changes.together([*changes, Changes(scaled=scaled(subject.kernels, small))]),
        exact=False,
        at_most_ns=own_ns + blocked_ns + subject.worst_ns(small, "gain_ns"),
        process=subject.process_of(loop.kernels),
        phase=phase,
        source=source,
        via=via,
    )


def _line_of(waits: tuple[Stalls, ...]) -> tuple[str, str]:
    """The lines that wait longest; empty where none are known."""
    known = [one for one in waits if one.line]
    most = max(known, key=lambda one: one.blocked_ns, default=None)
    return (most.source, most.via) if most else ("", "")
