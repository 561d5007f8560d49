"""Memory that grows from step to step, or only seems to; and how many times the batch fits."""

from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from tests import in_us
from tests.analysis.findings.subjects import MS, launched, repeated
from tests.analysis.tables.test_memory import STEPS as SOME_STEPS
from tests.in_us import opened
from tests.oracle.model import Frame, GpuMemory, MemoryChange, PlainTrace, Running, to_trace
from tests.tiny import MAIN, PROCESS, plain_of

STEPS: Final = 14
MB: Final = 1 << 20
GB: Final = 10**9


def changes(*changed: tuple[int, int, int]) -> tuple[MemoryChange, ...]:
    """Allocations and what frees them: of each time, address and bytes."""
    level, rows = 0, []
    for row, (time_ns, address, size) in enumerate(sorted(changed)):
        level += size
        of = (time_ns, row, 0, PROCESS, "allocator", size, level, 10 * GB)
        rows.append(MemoryChange(*of, thread=MAIN, address=address))
    return tuple(rows)


def program(kept: list[int], lines: int) -> PlainTrace:
    """Steps of 1 ms that all compute; step i allocates `kept[i]` bytes in a phase, and no later one
    frees them. So many lines of the program allocate in turn."""
    starts = range(0, STEPS * MS, MS)
    step = opened(0, 999, "step"), opened(10, 90, "metrics"), *launched(1, 997, took=1, queued=1)
    made = ((at + 20_000, i, size) for i, (at, size) in enumerate(zip(starts, kept, strict=True)))
    memory = changes(*(each for each in made if each[2]))
    called = [Frame("/home/me/train.py", 40 + i % lines, "log") for i in range(STEPS)]
    running = tuple(
        Running(at + 15_000, at + 25_000, MAIN, (Frame(None, None, "aten::cat"), line))
        for at, line in zip(starts, called, strict=True)
    )
    rows = repeated(step, 1_000, STEPS)
    return replace(plain_of(*rows), memory=memory, running=running)


LEAK: Final = (
    *("GPU memory grows by 3.15 MB a step in step/metrics, train.py:40 in log", "step/metrics"),
    *("train.py:40 in log", 0),  # it saves no time
)


@pytest.mark.parametrize(
    ("kept", "lines", "found"),
    [
        ([3 * MB] * STEPS, 1, [LEAK]),
        ([3 * MB, 3 * MB] + [0] * (STEPS - 2), 1, []),  # only while it warms up
        ([1000] * STEPS, 1, []),
        ([3 * MB if step % 2 else 0 for step in range(STEPS)], 1, []),
        ([3 * MB] * STEPS, 2, []),
    ],
    ids=["a leak", "warm-up", "little", "not in every step", "two lines in turn"],
)
def test_only_memory_that_a_line_keeps_in_each_step_is_a_leak(
    kept: list[int], lines: int, found: list[tuple[object, ...]]
) -> None:
    rows = nsysflow.analyze(to_trace(program(kept, lines))).findings.filter(rule="memory-growth")
    assert rows.select("title", "phase", "source", "saving_high_ns").rows() == found


def growing(*apis: str) -> list[Valued]:
    """A leak whose steps also make these calls for memory, with an idle GPU behind each."""
    plain = program([3 * MB] * STEPS, 1)
    calls = (
        in_us.call(1_000 * step + 200 + 100 * at, 1_000 * step + 290 + 100 * at, api)
        for step in range(STEPS)
        for at, api in enumerate(apis)
    )
    kernel = launched(1, 150, took=1, queued=1), launched(600, 350)
    rows = (opened(0, 999, "step"), opened(10, 90, "metrics"), *kernel[0], *kernel[1])
    whole = plain_of(*repeated(rows, 1_000, STEPS), *calls)
    trace = replace(whole, memory=plain.memory, running=plain.running)
    return [*find(JudgedReport(nsysflow.analyze(to_trace(trace)))).valued]


def test_what_growing_memory_asks_of_cuda_is_what_it_costs() -> None:
    first = growing("cudaMalloc", "cudaMalloc")[0]
    assert first.finding.rule == "memory-growth"
    assert first.finding.title == LEAK[0]
    assert 130_000 < first.high_ns <= 180_000  # less what recording takes of two calls of 90 us


def test_memory_that_is_given_back_is_no_cost_of_a_leak() -> None:
    rules = [one.finding.rule for one in growing("cudaFree", "cudaFree", "cudaMalloc")]
    assert rules[0] == "allocator-churn"
    assert rules.count("memory-growth") == 1


def called(*lines: tuple[int, str]) -> tuple[Frame, ...]:
    """A stack of the program, innermost first."""
    return tuple(Frame("/home/me/train.py", number, function) for number, function in lines)


FORWARD: Final = (29, "forward")
LOOK: Final = called(FORWARD, (52, "look"), (72, "step"))
STEP: Final = called(FORWARD, (68, "step"))


@pytest.mark.parametrize(
    ("others", "at"), [(True, "train.py:52 in look"), (False, "train.py:29 in forward")]
)
def test_a_leak_is_named_by_the_call_that_keeps_what_other_calls_free(
    others: bool, at: str
) -> None:
    plain = program([3 * MB] * STEPS, 1)
    kept = [replace(row, frames=LOOK) for row in plain.memory]
    freed = [
        replace(row, time_ns=row.time_ns + us * 1_000, bytes=size, address=99, frames=STEP)
        for row in plain.memory
        for us, size in ((100, 9 * MB), (200, -9 * MB))
    ]
    rows = sorted([*kept, *(freed if others else ())], key=lambda row: row.time_ns)
    memory = tuple(replace(row, row=number) for number, row in enumerate(rows))
    analysis = nsysflow.analyze(to_trace(replace(plain, memory=memory)))
    (leak,) = analysis.findings.filter(rule="memory-growth").rows(named=True)
    assert leak["source"] == at
    assert leak["title"].endswith(at)
    assert ("by its calls of train.py:29 in forward" in leak["evidence"]) is others


def of_training(weight: int, activation: int, freed_at: int) -> tuple[MemoryChange, ...]:
    """Two weights of a size; each step makes two activations, then gradients as it frees these,
    one of them so late, and one that is as large as a weight, before the largest of the others."""
    steps = [
        change
        for at in range(0, 600, 100)
        for change in (
            *((at + 20, 3, weight), (at + 30, 4, activation), (at + 40, 5, activation)),
            *((at + 50, 6, weight), (at + freed_at, 5, -activation), (at + 60, 4, -activation)),
            *((at + 62, 3, -weight), (at + 65, 7, weight), (at + 90, 6, -weight)),
            (at + 91, 7, -weight),
        )
    ]
    return changes((-9, 1, weight), (-8, 2, weight), *sorted(steps))


@pytest.mark.parametrize("freed_at", [55, 135])  # as a variable's value goes with its next one
@pytest.mark.parametrize(
    ("usable", "times", "title"),
    [
        # 2 + 1 GB do not grow, 1 + 2 · 3 do
        (80 * GB, 11.0, "memory for 9.8 times the batch: 10.0 GB of 80.0 GB are used"),
        (20 * GB, 17 / 7, "memory for 2.1 times the batch: 10.0 GB of 20.0 GB are used"),
        (14 * GB, 11 / 7, None),
    ],
)
def test_what_is_no_gradient_grows_with_the_batch(
    usable: int, times: float, title: str | None, freed_at: int
) -> None:
    """Spec §26.15."""
    limit = (GpuMemory(PROCESS, 0, usable),)
    model = replace(SOME_STEPS, memory=of_training(GB, 3 * GB, freed_at), gpu_memory=limit)
    analysis = nsysflow.analyze(to_trace(model)).judged
    (row,) = analysis.larger_batch.rows(named=True)
    assert (row["peak_bytes"], row["growing_bytes"]) == (10 * GB, 7 * GB)
    assert row["times"] == pytest.approx(times)
    titles = [v.finding.title for v in analysis.found.valued if v.finding.rule == "larger-batch"]
    assert titles == ([] if title is None else [title])
