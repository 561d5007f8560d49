"""The line and the block on MFU: which peak, per rank, and nothing where nothing is declared."""

from dataclasses import replace

from nsysflow.analysis.options import Options
from nsysflow.report.results import Results
from nsysflow.report.utilization import mfu_lines, rates
from tests.report.handmade import MS, device, handmade, measured


def test_the_line_names_the_peak_that_it_divides_by() -> None:
    assert mfu_lines(Results([measured()])) == (
        "MFU 40.4 % (bf16 dense peak 989 TFLOP/s): 400 TFLOP/s a step",
    )


def test_each_rank_has_a_line() -> None:
    named = replace(measured().trace, report="rank1")
    mfu = measured().mfu.with_columns(
        report=measured().mfu["report"].replace("run.sqlite", "rank1")
    )
    other = replace(measured(), trace=named, tables={"mfu": mfu})
    lines = mfu_lines(Results([measured(), other]))
    assert [line.split(": ")[0] for line in lines] == ["run.sqlite GPU 0", "rank1 GPU 0"]


def test_a_gpu_of_unknown_peak_has_a_rate_and_no_mfu() -> None:
    row = {"path": "step", "unit": "bf16", "flops": 10**12, "flops_per_s": 1e14}
    unknown = {**row, "mfu_pct": None, "peak_flops_per_s": None}
    other = device(50 * MS, name="NVIDIA T4")
    assert mfu_lines(Results([handmade(accounting=[other], mfu=[unknown])])) == (
        "100 TFLOP/s a step (bf16; no bf16 peak is known of NVIDIA T4)",
    )


def test_phases_have_rates_of_their_own() -> None:
    block = rates(Results([measured()]), limit=5)
    assert block.rows == (
        ("step", "10.0 ms", "4.00 TFLOP", "400 TFLOP/s", "40.4 %"),
        ("step/backward", "6.00 ms", "3.00 TFLOP", "500 TFLOP/s", "50.5 %"),
        ("step/forward", "2.00 ms", "1.00 TFLOP", "500 TFLOP/s", "50.5 %"),
    )


def test_a_step_alone_has_a_line_and_no_block() -> None:
    alone = replace(measured(), tables=measured().tables | {"mfu": measured().mfu.head(1)})
    assert len(mfu_lines(Results([alone]))) == 1
    assert rates(Results([alone]), limit=5).rows == ()


def test_without_flops_there_is_neither() -> None:
    bare = Results([handmade(accounting=[device(50 * MS)])])
    assert mfu_lines(bare) == ()
    assert rates(bare, limit=5).rows == ()


def test_flops_of_a_step_that_is_not_found_are_not_passed_over() -> None:
    asked = replace(handmade(accounting=[device(50 * MS)]), options=Options(flops_per_step=1e12))
    (line,) = mfu_lines(Results([asked]))
    assert "no step was found" in line
