"""Programs that keep a GPU busy, written down as kernels one after the other."""

from dataclasses import replace
from typing import Final

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from tests import tiny
from tests.analyses import analysed
from tests.oracle.model import Device, Op, Range, Shape, to_trace

US: Final = 1_000
Kernels = list[tuple[str, int]]
"""Full names and lengths in us."""

_QUEUED: Final = 1_000 * US
"""The first kernel starts when all are launched, so that the host limits nothing."""


def subject_of(
    kernels: Kernels,
    *,
    gpu: str = "NVIDIA H200",
    blocks: tuple[int, ...] = (1_000,),
    ranges: tuple[Range, ...] = (),
    pause_us: int = 1,
) -> JudgedReport:
    """A GPU that runs these, one launch a us, with a short pause between two kernels; their grids
    take turns in having so many `blocks`, and the GPU has 100 SMs."""
    rows: list[tiny.Row] = [*ranges]
    at = _QUEUED
    for number, (name, us) in enumerate(kernels, start=1):
        rows.append(tiny.launch(number * US, number * US + US // 2, number))
        rows.append(_kernel(at, at + us * US, number, name, blocks[number % len(blocks)]))
        at += (us + pause_us) * US
    device = Device(device=0, name=gpu, uuid=None, sm_count=100, memory_bytes_per_s=None)
    trace = to_trace(replace(tiny.plain_of(*rows), devices=(device,)))
    return JudgedReport(nsysflow.analyze(trace))


def _kernel(start: int, end: int, number: int, name: str, blocks: int) -> Op:
    kernel = tiny.kernel(start, end, number, name=name)
    return replace(kernel, short_name=short_name(name), shape=Shape(grid_x=blocks))


def short_name(name: str) -> str:
    """As loaders shorten it: no namespace and arguments, and the kernel inside cutlass's own."""
    plain = name.removeprefix("void ").replace("<unnamed>::", "")
    outer, _, inner = plain.partition("<")
    shorter = inner.partition(">")[0] if outer.endswith("Kernel2") else outer
    return shorter.rpartition("::")[2].partition("(")[0]


def real(name: str) -> JudgedReport:
    """The judged part of a real report."""
    return JudgedReport(analysed(name))


def asked(rule: Rule, subject: JudgedReport) -> Finding | None:
    """What the rule finds first."""
    return next(rule(subject), None)


def left_of(finding: Finding | None) -> dict[str, float]:
    """The factor of each kernel's time in the replay, rounded."""
    assert finding is not None
    assert finding.changes is not None
    return {name: round(factor, 2) for name, factor in finding.changes.scaled}
