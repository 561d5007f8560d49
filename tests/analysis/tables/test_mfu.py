"""MFU: compared with the oracle and a count by hand; impossible values are refused."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.schema import FLOPS
from nsysflow.analysis.tables.mfu import MFU
from nsysflow.base.errors import FlopsError
from nsysflow.report.blocks.accounting import mfu_sentences
from nsysflow.report.results import Results
from tests.analyses import analysed, loaded, oracle_of
from tests.oracle.accounting import Keep
from tests.oracle.mfu import mfu
from tests.oracle.model import Flops
from tests.oracle.report import Report
from tests.oracle.steps import steps_of

DDP = "h200-ddp-messages"
LAYERS, PRODUCT = 10, 2 * 4096**3
"""`ddp` at its usual size: forward has this many products of 4096 x 4096."""


def declaring(name: str, phases: dict[str, int], unit: str = "bf16") -> nsysflow.Trace:
    """A real report whose processes declare the FLOPs of a step."""
    trace = loaded(name)
    processes = trace.ops["process"].drop_nulls().unique().sort()
    rows = [(process, *each, unit) for process in processes for each in phases.items()]
    return replace(trace, flops=pl.DataFrame(rows, schema=FLOPS, orient="row"))


def compared(rows: list[dict[str, Any]]) -> Counter[tuple[object, ...]]:
    """Rows with rounded rates, for comparison: both sides divide floats."""
    return Counter(
        tuple(f"{v:.9e}" if isinstance(v, float) else v for v in (row[name] for name in MFU))
        for row in rows
    )


@pytest.mark.parametrize("name", [DDP, "synthetic-1"])
def test_rates_of_a_real_report_and_of_its_parts_are_the_oracles(name: str) -> None:
    """Of all, of the steps that start in a window, and of each GPU."""
    trace = declaring(name, {"forward": 10**6, "backward": 2 * 10**6, "aten::mm": 10**5})
    given = tuple(Flops(*row) for row in trace.flops.rows())
    report = Report(replace(oracle_of(name).trace, flops=given))
    starts = sorted(step.start_ns for step in steps_of(report))
    # from within the first step to just after the last one's start: both are cut
    cut = starts[0] + 1, starts[-1] + 1000
    parts: list[tuple[Options, Keep | None]] = [
        (Options(), None),
        (Options(from_ns=cut[0], to_ns=cut[1]), {device: [cut] for device in report.devices}),
        *((Options(device=on), {on: report.windows[on]}) for on in report.devices),
    ]
    for options, keep in parts:
        found = nsysflow.analyze(trace, options).mfu
        assert compared(found.to_dicts()) == compared(mfu(report, keep)), options
    assert found.height > 0


def test_a_real_step_runs_at_the_rate_computed_by_hand() -> None:
    flops = (3 * LAYERS - 1) * PRODUCT
    (row,) = nsysflow.analyze(loaded(DDP), Options(flops_per_step=flops)).mfu.to_dicts()
    steps = analysed(DDP).steps.filter("steady")
    seconds = float(steps.select(pl.col("duration_ns").median()).item()) / 1e9
    assert row["flops_per_s"] == pytest.approx(flops / seconds, rel=1e-6)
    assert row["mfu_pct"] == pytest.approx(100 * flops / seconds / 989.4e12, rel=1e-6)
    assert (row["unit"], row["path"], row["steps"]) == ("bf16", "step", steps.height)


def test_a_rate_above_the_peak_is_refused_with_the_options_to_check() -> None:
    options = Options(flops_per_step=3 * LAYERS * PRODUCT, flops_dtype="float32")
    with pytest.raises(
        FlopsError, match="% of the dense float32 peak of an NVIDIA H200"
    ) as refused:
        _ = nsysflow.analyze(loaded(DDP), options).mfu
    assert "--flops-per-step F" in str(refused.value)
    assert "--flops-dtype tf32" in str(refused.value)


def test_the_command_line_overrides_what_the_program_declares() -> None:
    trace = declaring(DDP, {"forward": 10**9})
    typed = nsysflow.analyze(trace, Options(flops_per_step=5e9)).mfu
    assert typed.select("path", "flops", "unit").rows() == [("step", 5 * 10**9, "bf16")]
    other = nsysflow.analyze(trace, Options(flops_dtype="fp8")).mfu
    assert other["unit"].unique().to_list() == ["fp8"]
    assert other["flops"].to_list() == [10**9, 10**9]


EAGER: Final = "launch_bound-eager"


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        (EAGER, Options(), "no step was found"),
        ("h200-ddp-rank0", Options(range="backward"), "no step starts in the selected part"),
        (
            "h200-train",
            Options(step="forward"),
            "name one by its whole path, e.g. --step warmup/forward",
        ),
    ],
)
def test_the_page_says_why_steps_have_no_rate(name: str, options: Options, reason: str) -> None:
    trace = loaded(name)
    if name == EAGER:  # its 500 equal launches tell no step from another
        trace = replace(trace, ranges=trace.ranges.clear())
    analysis = nsysflow.analyze(trace, replace(options, flops_per_step=1e9))
    assert analysis.mfu.is_empty()
    assert reason in " ".join(mfu_sentences(Results([analysis])))
