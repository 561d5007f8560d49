"""`serial-scheduling`: a serving engine prepares a step only when the one before it is done.

The engine reads the tokens of a step, then its scheduler, its input tensors and the launches take
some milliseconds in which the GPU idles. Engines can do all that while the GPU computes: the next
step's input tokens are taken from the GPU, and the host reads them one step later.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import number, whole_percent

CHANGE: Final = (
    "schedule ahead: vLLM --async-scheduling, SGLang without --disable-overlap-schedule,"
    " TensorRT-LLM without disable_overlap_scheduler",
    "in an engine of your own: launch the next step with the tokens on the GPU as its input, and"
    " read them on the host after that",
)


def serial_scheduling(subject: JudgedReport) -> Iterator[Finding]:
    """The steps of a serving engine whose host waits for their tokens before it prepares the
    next."""
    waits = subject.timeline.token_waits
    steps = subject.judged_steps.filter(pl.col("range").is_in(waits["range"].implode()))
    if steps.is_empty():
        return
    rows = subject.tables.serving.filter(pl.col("kind") == "all")
    waiting_ns = subject.worst_ns(rows, "host_wait_ns")
    calls = subject.timeline.stalls.join(waits, on="call", how="semi")
    places = calls.group_by(pl.col("name").cast(pl.String), "phase").len()
    api, phase, _ = places.sort("len", "name", "phase").row(-1)
    yield Finding(
        rule="serial-scheduling",
        title="the engine prepares a step only when the one before it is done",
        change=CHANGE,
        evidence=(
            f"the GPU waits for the scheduler, the sampler and launches for"
            f" {subject.spent(waiting_ns)}, {whole_percent(waiting_ns, subject.step_ns)}",
            f"{number(len(steps))} of {number(len(subject.judged_steps))} judged steps end with a"
            " wait for their tokens",
        ),
        table="serving",
        size_ns=waiting_ns,
        steps=subject.steps_with(steps["start_ns"]),
        changes=Changes(overlapped=True),
        phase=phase,
        culprit=api,
    )
