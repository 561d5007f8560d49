"""Gradients that are accumulated over more micro-batches than memory needs.

`small-micro-batches`: a step runs the same forward and backward pass several times, one small
micro-batch after the other, and in each of them the GPU waits for its launches.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.accumulation import Accumulation, usual_accumulations
from nsysflow.analysis.findings.finding import Finding, line
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import kernels_by_pass
from nsysflow.analysis.findings.launches import host_of_launches, with_less_code
from nsysflow.analysis.findings.launching_lines import calling_line
from nsysflow.analysis.findings.rules.larger_batch import times_that_fit
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import duration, number, size, whole_percent

IDLE_PCT: Final = 20
"""If the GPU waits less of the step for launches and code in these passes, larger ones take nearly
as much longer as they are larger."""

WORTH_PCT: Final = 10
"""Nobody changes a micro-batch for less: memory and the loss have to be looked at again."""

PIPELINED: Final = r"(?i)send_?recv"
"""Kernels by which stages of a pipeline hand on micro-batches: there have to be several."""


def small_micro_batches(subject: JudgedReport) -> Iterator[Finding]:
    """Steps whose GPU waits for the launches of one micro-batch after the other.

    A step of eight micro-batches took 146 to 162 ms, and 18 to 26 with one of eight times the size
    (protein_mlm, H200, 2026-11-30).
    """
    if not subject.of_steps or matching(subject.kernels["name"], PIPELINED).any():
        return
    kernels = kernels_by_pass(subject)
    same = usual_accumulations(subject, kernels)
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
