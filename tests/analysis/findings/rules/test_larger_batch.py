"""How many times the batch fits, and whether that is named (spec §26.15)."""

from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from tests.analysis.tables.test_memory import STEPS
from tests.oracle.model import GpuMemory, MemoryChange, to_trace
from tests.tiny import PROCESS

GB: Final = 10**9


def made(*changes: tuple[int, int, int]) -> tuple[MemoryChange, ...]:
    """Allocations and what frees them: of each time, address and bytes."""
    level, rows = 0, []
    for row, (time_ns, address, size) in enumerate(sorted(changes)):
        level += size
        rows.append(
            MemoryChange(
                *(time_ns, row, 0, PROCESS, "allocator", size, level, 10 * GB), address=address
            )
        )
    return tuple(rows)


def of_training(weight: int, activation: int) -> tuple[MemoryChange, ...]:
    """Two weights of a size; each step makes two activations, then gradients as it frees these,
    and one that is as large as a weight, before the largest of the others."""
    steps = [
        change
        for at in range(0, 600, 100)
        for change in (
            *((at + 20, 3, weight), (at + 30, 4, activation), (at + 40, 5, activation)),
            *((at + 50, 6, weight), (at + 55, 5, -activation), (at + 60, 4, -activation)),
            *((at + 62, 3, -weight), (at + 65, 7, weight), (at + 90, 6, -weight)),
            (at + 91, 7, -weight),
        )
    ]
    return made((-9, 1, weight), (-8, 2, weight), *steps)


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
    usable: int, times: float, title: str | None
) -> None:
    model = replace(
        STEPS,
        memory=of_training(GB, 3 * GB),
        gpu_memory=(GpuMemory(PROCESS, 0, usable),),
    )
    analysis = nsysflow.analyze(to_trace(model)).judged
    (row,) = analysis.larger_batch.rows(named=True)
    assert (row["peak_bytes"], row["growing_bytes"]) == (10 * GB, 7 * GB)
    assert row["times"] == pytest.approx(times)
    titles = [v.finding.title for v in analysis.found.valued if v.finding.rule == "larger-batch"]
    assert titles == ([] if title is None else [title])
