"""Gradients that are accumulated over more micro-batches than memory needs.

`small-micro-batches`: a step runs the same forward and backward pass several times, one small
micro-batch after the other, and in each of them the GPU waits for its launches.

Only what is surely that counts: all backward passes of a step are alike, before each stands the
same forward pass with the same loss, and no optimizer comes between. So several losses, the two
networks of a GAN, attacks, and updates that follow each other are told apart (spec §16.36).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding, line
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import kernels_by_pass
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.findings.launches import host_of_launches, with_less_code
from nsysflow.analysis.findings.launching_lines import calling_line
from nsysflow.analysis.findings.rules.memory import times_that_fit
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.schema import blocks_of_grid
from nsysflow.base.units import duration, number, size, whole_percent

IDLE_PCT: Final = 20
"""If the GPU waits less of the step for launches and code in these passes, larger ones take nearly
as much longer as they are larger."""

WORTH_PCT: Final = 10
"""Nobody changes a micro-batch for less: memory and the loss have to be looked at again."""

PIPELINED: Final = r"(?i)send_?recv"
"""Kernels by which stages of a pipeline hand on micro-batches: there have to be several."""

MOST_STEPS: Final = 0.8
"""So many of the judged steps accumulate: others may be cut, or be longer ones."""

FEW: Final = 4
"""A later forward pass may have so many kernels more than the first: the loss is added up, which
takes one or two. An update in between takes some for each weight."""

ALIKE: Final = 2
"""A micro-batch has at most so many times the blocks of another one: lengths may differ, but not
the kind of batch."""

BETWEEN: Final = ("elementwise", "copy/cast")
"""Classes of which the first pass may run less or more: later ones add their gradients to those
that are there, and weights may be cast once."""

FUNCTION: Final = r"\w*Functor\w*|\w+Ops\b|\w+_kernel_(?:cuda|impl)\w*"
"""What PyTorch's kernels compute, in their full names: `MeanOps`, `CUDAFunctor_add`. The rest of a
name says how, and may change with a size."""

ADDS: Final = r"CUDAFunctor(?:OnSelf|OnOther)?_add"
"""In the names of PyTorch's kernels that add a gradient to the one that is there, and a loss to the
sum of losses."""

OPTIMIZER: Final = "optimizer"
"""The class of an optimizer's kernels, and the job of those that update one tensor each."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Kernels in a row of one step and stream, all of the backward pass or none.

    Attributes:
        backward: whether they are of the backward pass.
        rows: the numbers of the kernels.
        kinds: what they compute, without additions.
        marks: the same in order, without `BETWEEN`.
        loss: of a forward pass what follows its last product, of a backward pass what comes before
            the first one, without additions.
        products: the blocks of each product.
        adds: how many of them only add.
        optimizes: whether one of them is an optimizer's.
    """

    backward: bool
    rows: tuple[int, ...]
    kinds: frozenset[str]
    marks: tuple[str, ...]
    loss: tuple[str, ...]
    products: tuple[int, ...]
    adds: int
    optimizes: bool


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """The micro-batches of one step.

    Attributes:
        lane: the stream.
        rounds: for each micro-batch the numbers of its kernels, those of the forward pass first.
        backward: the numbers of the kernels of all backward passes.
    """

    lane: int
    rounds: tuple[tuple[int, ...], ...]
    backward: tuple[int, ...]


def small_micro_batches(subject: JudgedReport) -> Iterator[Finding]:
    """Steps whose GPU waits for the launches of one micro-batch after the other.

    A step of eight micro-batches took 146 to 162 ms, and 18 to 26 with one of eight times the size
    (protein_mlm, H200, 2026-11-30).
    """
    if not subject.of_steps or matching(subject.kernels["name"], PIPELINED).any():
        return
    kernels = kernels_by_pass(subject)
    same = _usual_accumulations(subject, kernels)
    if not same:
        return
    count = len(same[0].rounds)
    memory = _memory(subject)
    times = count if memory is None else _divisor(count, times_that_fit(memory))
    idle_ns = _idle_in_later(subject, kernels, same)
    worth = 100 * idle_ns * count >= IDLE_PCT * subject.step_ns * (count - 1)
    if times < 2 or not worth:
        return
    left = count // times
    gone = kernels[sorted(row for one in same for round_ in one.rounds[left:] for row in round_)]
    host = host_of_launches(subject, gone["op"])
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    launches = subject.worst_ns(gone.with_columns(pl.lit(1).alias("one")), "one")
    source, via = calling_line(subject, kernels[[row for one in same for row in one.backward]])
    at = f", called at {line(source, via)}" if source else ""
    yield Finding(
        rule="small-micro-batches",
        title=f"gradients are accumulated over {count} small micro-batches, and the GPU waits for"
        f" the launches of each{at}",
        change=_change(times, left, known=memory is not None),
        evidence=(
            f"a step runs the same forward and backward pass {count} times, with no optimizer"
            f" between: {number(launches)} launches a step would go",
            f"in all of these passes but the first the GPU waits for launches and the code between"
            f" them: {duration(idle_ns)}, {whole_percent(idle_ns, subject.step_ns)} of the step",
            f"launches of {count - left} of {count} passes and the code before each take the host"
            f" {subject.spent(own_ns)}; kernels count as long as now, but larger ones fill the GPU"
            " better",
            _of_memory(memory, times, count),
        ),
        table="launches",
        size_ns=idle_ns * (count - left) // (count - 1),
        steps=min(subject.steps, subject.steps_with(gone["start_ns"])),
        changes=with_less_code(subject, host),
        exact=False,
        saves_more=True,
        at_most_ns=own_ns,
        worth_ns=WORTH_PCT * subject.step_ns // 100,
        process=subject.process_of(gone),
        source=source,
        via=via,
    )


def _change(times: int, left: int, *, known: bool) -> tuple[str, ...]:
    """What to do, where so many micro-batches are left, each so many times as large; `known` says
    whether memory holds them for sure."""
    holds = "" if known else ", if memory holds it"
    one = f"one micro-batch {times} times as large instead{holds}"
    some = f"{left} micro-batches {times} times as large instead"
    return (
        f"{some if left > 1 else one}: the gradients have the same sum",
        "where memory ends before that: as large as fits, and fewer steps of accumulation",
        "a loss that is divided by the number of micro-batches is divided by the new one",
    )


def _memory(subject: JudgedReport) -> dict[str, Any] | None:
    """The row of the table `larger_batch` with the least room; None where nothing is known."""
    rows = subject.tables.larger_batch.rows(named=True)
    return min(rows, key=times_that_fit, default=None)


def _divisor(count: int, times: float) -> int:
    """How many of so many micro-batches fit at once, so that all are as large."""
    return max(each for each in range(1, count + 1) if count % each == 0 and each <= max(1, times))


def _of_memory(memory: dict[str, Any] | None, times: int, count: int) -> str:
    """How much room there is, as a sentence."""
    if memory is None:
        return (
            "the report does not show whether memory holds more: record with nsysflow profile"
            " --memory"
        )
    peak, usable = (size(memory[f"{name}_bytes"]) for name in ("peak", "usable"))
    holds = f"{times} of these {count}" if times < count else f"all {count}"
    return f"memory holds {holds} at once: {peak} of {usable} are used"


def _idle_in_later(
    subject: JudgedReport, kernels: pl.DataFrame, same: Sequence[Accumulation]
) -> int:
    """How long a GPU waits for launches and code, per step, from the end of each first round to
    that of the last one."""
    ends = pl.DataFrame(
        [(one.rounds[0][-1], one.rounds[-1][-1]) for one in same],
        schema={"first": pl.UInt32, "last": pl.UInt32},
        orient="row",
    )
    starts, lasts = kernels["start_ns"], kernels["start_ns"] + kernels["ns"]
    spans = pl.DataFrame(
        {
            "device": kernels["device"][ends["first"]],
            "process": kernels["process"][ends["first"]],
            "start_ns": starts[ends["first"]],
            "until_ns": lasts[ends["last"]],
        }
    ).sort("start_ns")
    pauses = subject.pauses.filter(~pl.col("long"), ~pl.col("data"), ~pl.col("loads_code"))
    placed = pauses.sort("start_ns").join_asof(
        spans, on="start_ns", by=["device", "process"], check_sortedness=False
    )
    inside = placed.filter(pl.col("start_ns") < pl.col("until_ns"))
    return subject.worst_ns(inside, "ns")


def _usual_accumulations(subject: JudgedReport, kernels: pl.DataFrame) -> list[Accumulation]:
    """What the steps accumulate whose number of micro-batches is the usual one; none where other
    steps of their GPU are more than a few.

    Args:
        subject: the judged part.
        kernels: its kernels, of `kernels_by_pass`.
    """
    found = _accumulations(subject, kernels)
    counts = Counter(len(one.rounds) for one in found)
    if not counts:
        return []
    usual = max(counts, key=lambda count: (counts[count], count))
    judged = subject.judged_steps.group_by("process", "device").len()
    steps = {(process, device): count for process, device, count in judged.iter_rows()}
    same: list[Accumulation] = []
    for _, of_lane in groupby(found, key=lambda one: one.lane):
        usually = [one for one in of_lane if len(one.rounds) == usual]
        if not usually:
            continue
        gpu = kernels.select("process", "device").row(usually[0].backward[0])
        same += usually if len(usually) >= MOST_STEPS * steps.get(gpu, 0) else []
    return same


def _accumulations(subject: JudgedReport, kernels: pl.DataFrame) -> list[Accumulation]:
    """What each step accumulates on each stream, of the steps that do.

    Args:
        subject: the judged part.
        kernels: its kernels, of `kernels_by_pass`.
    """
    return [
        found
        for (lane, _), passes in groupby(_passes(subject, kernels), key=lambda one: one[0])
        for found in _of_step(lane, [one for _, one in passes])
    ]


def _of_step(lane: int, passes: Sequence[Pass]) -> Iterator[Accumulation]:
    """The micro-batches of a step, if it has nothing else that goes backwards."""
    last = max(at for at, one in enumerate(passes) if one.backward)
    forwards, backwards = passes[0:last:2], passes[1 : last + 1 : 2]
    if passes[0].backward or len(backwards) < 2:
        return
    later = forwards[1:]
    optimizes = any(one.optimizes for one in (forwards[0], *passes[last + 1 :]))
    adds = min(one.adds for one in backwards[1:]) > backwards[0].adds
    if (
        not any(one.optimizes for one in later)
        and (optimizes or adds)
        and _are_alike(forwards)
        and _are_alike(backwards)
        and all(len(one.rows) <= len(forwards[0].rows) + FEW for one in later)
    ):
        pairs = zip(forwards, backwards, strict=True)
        yield Accumulation(
            lane=lane,
            rounds=tuple((*forward.rows, *backward.rows) for forward, backward in pairs),
            backward=tuple(row for one in backwards for row in one.rows),
        )


def _are_alike(passes: Sequence[Pass]) -> bool:
    """Whether these passes have products, and compute the same, each in as many blocks, but for
    what the first one begins with."""
    first, second, *_ = passes
    products, marks = len(second.products), len(second.marks)
    blocks = [sum(one.products[-products:]) for one in passes]
    return (
        products > 0
        and first.marks[-marks:] == second.marks
        and (not first.backward or len(first.marks) == marks)
        and len({one.marks for one in passes[1:]}) == 1
        and len({one.loss for one in passes}) == 1
        and all(one.kinds <= first.kinds for one in passes)
        and max(blocks) <= ALIKE * min(blocks)
    )


def _passes(subject: JudgedReport, kernels: pl.DataFrame) -> Iterator[tuple[tuple[int, int], Pass]]:
    """The passes, in order, of steps with two backward passes or more that have as many products;
    each with its stream and step."""
    place = ["lane", "step"]
    blocks = subject.grids.select(blocks_of_grid().alias("blocks"))["blocks"]
    rows = (
        kernels.select(*place, "backward", "class", "job", "name", "short_name", "detail")
        .with_row_index("row")
        .drop_nulls([*place, "backward"])
        .with_columns(pl.struct(*place, "backward").rle_id().alias("pass"))
    )
    product = pl.col("class").is_in([*MATRIX_CLASSES])
    backward = rows.filter("backward").group_by(*place, "pass").agg(product.sum().alias("products"))
    products = pl.col("products")
    alike = backward.group_by(place).agg(
        pl.len().alias("count"), products.min().alias("least"), products.max().alias("most")
    )
    alike = alike.filter(
        pl.col("count") > 1, pl.col("least") > 0, pl.col("least") == pl.col("most")
    )
    rows = rows.join(alike, on=place, how="semi", maintain_order="left")
    optimizer = (pl.col("class") == OPTIMIZER) | (pl.col("job") == OPTIMIZER)
    rows = rows.join(_kinds(rows), on=["name", "short_name"], how="left", maintain_order="left")
    passes = (
        rows.with_columns(
            blocks[rows["detail"]].fill_null(1).alias("blocks"),
            optimizer.fill_null(value=False).alias("optimizer"),
        )
        .group_by("pass", maintain_order=True)
        .agg(
            pl.col(*place, "backward").first(),
            *("row", "kind", "part", "blocks"),
            pl.col("optimizer").any(),
        )
    )
    for lane, step, backwards, *parts in passes.drop("pass").iter_rows():
        yield (lane, step), _pass(backwards, *parts)


def _kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """What kernels compute by `name` and `short_name`: `kind`; and `part`: `product`, `add`,
    `small` (`BETWEEN`) or `other`."""
    names = rows.select("name", "short_name", "class").unique(["name", "short_name"])
    text, short = (pl.col(name).cast(pl.String) for name in ("name", "short_name"))
    computes = text.str.extract_all(FUNCTION).list.join(" ")
    small, product = (pl.col("class").is_in([*some]) for some in (BETWEEN, MATRIX_CLASSES))
    return names.select(
        "name",
        "short_name",
        pl.when(product)
        .then(pl.col("class").cast(pl.String))
        .when(computes != "")
        .then(computes)
        .otherwise(short)
        .alias("kind"),
        pl.when(product)
        .then(pl.lit("product"))
        .when(small & text.str.contains(ADDS))
        .then(pl.lit("add"))
        .when(small)
        .then(pl.lit("small"))
        .otherwise(pl.lit("other"))
        .alias("part"),
    )


def _pass(
    backward: bool,
    rows: list[int],
    kinds: list[str],
    parts: list[str],
    blocks: list[int],
    optimizes: bool,
) -> Pass:
    """A pass of these kernels."""
    kernels = [*zip(kinds, parts, blocks, strict=True)]
    products = [at for at, part in enumerate(parts) if part == "product"]
    if not products:
        loss = kernels
    else:
        loss = kernels[: products[0]] if backward else kernels[products[-1] + 1 :]
    return Pass(
        backward=backward,
        rows=tuple(rows),
        kinds=frozenset(kind for kind, part, _ in kernels if part != "add"),
        marks=tuple(kind for kind, part, _ in kernels if part not in ("add", "small")),
        loss=tuple(kind for kind, part, _ in loss if part != "add"),
        products=tuple(blocks[at] for at in products),
        adds=parts.count("add"),
        optimizes=optimizes,
    )
