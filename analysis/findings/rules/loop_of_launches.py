"""`loop-of-launches`: a Python loop that launches a few small kernels in each pass.

An update of moving averages, an optimizer written by hand, a loss computed image by image, a sum
over time: the GPU waits before each kernel.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import running
from nsysflow.analysis.findings.judged_report import JudgedReport, scaled
from nsysflow.analysis.findings.rules import host_code
from nsysflow.analysis.findings.rules.launch_bound import launches_cost
from nsysflow.analysis.findings.rules.tiny_kernels import gain_as_few
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.frames.statistics import median_ns
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import duration, number

MANY: Final = 100
"""So many kernels a step are a loop: five for each of 20 tensors."""

PASSES: Final = 10
"""A loop launches each of its kernels so often, in the mean. It is no finding if it also waits so
often, for example to read a value: then the wait has to go first."""

MOST_PCT: Final = 75
"""A step that is such a loop and little else is launch-bound as a whole."""

SIMPLE_PCT: Final = 95
"""So many of the kernels must be simple ones. A loop with matmuls is a model, which needs other
remedies."""

SIMPLE: Final = ("elementwise", "copy/cast", "reduction", "norm", "softmax", "other")
"""Classes of kernels that one call over many tensors can do."""

BACKWARD: Final = r"(?i)backward"
"""Autograd repeats there what the forward pass did: the loop to change is not in it."""

CHANGE: Final = (
    "one call for all tensors, such as torch._foreach_lerp_, or a fused optimizer",
    "stack the tensors, and compute all of them at once",
    "torch.compile the function: it unrolls the loop and fuses its kernels",
)


def loop_of_launches(subject: JudgedReport) -> Iterator[Finding]:
    """The loops of a program whose GPU waits for launches: one for each phase, and one for the code
    outside all phases."""
    if not subject.of_steps or not launches_cost(subject):
        return
    for phase, kernels in loops(subject).items():
        pauses = subject.pauses.filter(
            pl.col("phase") == phase, ~(pl.col("data") | pl.col("loads_code"))
        )
        ran = running(subject, phase)
        size_ns = subject.worst_ns(pauses, "ns")
        outside = phase == OUTSIDE
        code = f": {ran.mostly}" if ran.mostly else f", most in {ran.most}" if ran.most else ""
        where = code if ran.mostly and outside else f"{place(phase)}{code}"
        count = number(subject.per_step(len(kernels)))
        faster = scaled(subject.kernels, kernels.with_columns(gain_as_few()))
        yield Finding(
            rule="loop-of-launches",
            title=f"a loop launches {count} small kernels a step{where}",
            change=CHANGE,
            evidence=(
                f"{count} kernels a step, {number(kernels['name'].n_unique())} different ones,"
                f" {duration(kernels.select(median_ns(pl.col('ns'))).item())} each",
                f"the GPU waits {subject.spent(size_ns)} for these launches and the code between"
                " them",
                *ran.evidence,
            ),
            table="host_stacks" if ran.evidence else "launches",
            size_ns=size_ns,
            steps=subject.steps_with(pauses["start_ns"]),
            changes=Changes(graphs=(host_code.itself(subject, phase),), scaled=faster),
            exact=False,
            process=subject.process_of(pauses),
            phase="" if outside else phase,
        )


def loops(subject: JudgedReport) -> dict[str, pl.DataFrame]:
    """The kernels of each loop of launches, by phase; `OUTSIDE` where no range is open."""
    return kept_with(subject, "loops of launches", lambda: dict(_loops(subject)))


def _loops(subject: JudgedReport) -> Iterator[tuple[str, pl.DataFrame]]:
    """Phases that launch many kernels, of few kinds, all simple, and that seldom wait."""
    phase = subject.view.attribution.name_of(subject.kernels["node"]).alias("phase")
    updates = (pl.col("job") == "optimizer").fill_null(value=False)
    simple = pl.col("class").is_in(SIMPLE) & ~updates & ~pl.col("phase").str.contains(BACKWARD)
    kernels = subject.kernels.with_columns(phase).with_columns(simple.alias("simple"))
    stalls = dict(subject.stalls.group_by("phase").len().iter_rows())
    for (phase,), rows in sorted(kernels.group_by("phase"), key=lambda group: str(group[0])):
        count = len(rows)
        many = subject.per_step(count) >= MANY and 100 * count < MOST_PCT * len(kernels)
        same = rows["name"].n_unique() * PASSES <= subject.per_step(count)
        mostly_simple = 100 * int(rows["simple"].sum()) >= SIMPLE_PCT * count
        if many and same and mostly_simple and stalls.get(phase, 0) * PASSES < count:
            yield str(phase) or OUTSIDE, rows
