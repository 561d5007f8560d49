"""MFU: a sentence per rank, a row per phase, nothing where no FLOPs are given."""

from dataclasses import replace

from nsysflow.analysis.options import Options
from nsysflow.report.blocks.mfu import block, mfu_sentences
from nsysflow.report.fields import Limits
from tests.report.handmade import MS, Results, device, handmade, measured


def test_the_sentence_names_the_peak() -> None:
    assert mfu_sentences(Results([measured()])) == (
        "MFU 40 %: 400 TFLOP/s of 989 TFLOP/s (bf16 dense peak)",
    )


def test_each_rank_has_a_sentence() -> None:
    named = replace(measured().trace, report="rank1")
    mfu = measured().mfu.with_columns(
        report=measured().mfu["report"].replace("run.sqlite", "rank1")
    )
    other = replace(measured(), trace=named, tables={"mfu": mfu})
    lines = mfu_sentences(Results([measured(), other]))
    assert [line.split(": ")[0] for line in lines] == ["run.sqlite GPU 0", "rank1 GPU 0"]


def test_a_gpu_of_unknown_peak_has_a_rate_and_no_mfu() -> None:
    row = {"path": "step", "unit": "bf16", "flops": 10**12, "flops_per_s": 1e14}
    unknown = {**row, "mfu_pct": None, "peak_flops_per_s": None}
    other = device(50 * MS, name="NVIDIA T4")
    assert mfu_sentences(Results([handmade(accounting=[other], mfu=[unknown])])) == (
        "100 TFLOP/s (bf16); the bf16 peak of NVIDIA T4 is not known",
    )


def test_phases_have_rates_of_their_own() -> None:
    assert block(Results([measured()]), Limits(rows=5)).rows == (
        ("step", "10.0 ms", "4.00 TFLOP", "400 TFLOP/s", "40 %"),
        ("step/backward", "6.00 ms", "3.00 TFLOP", "500 TFLOP/s", "51 %"),
        ("step/forward", "2.00 ms", "1.00 TFLOP", "500 TFLOP/s", "51 %"),
    )


def test_a_step_alone_has_a_sentence_and_no_rows() -> None:
    alone = replace(measured(), tables=measured().tables | {"mfu": measured().mfu.head(1)})
    assert len(mfu_sentences(Results([alone]))) == 1
    assert block(Results([alone]), Limits(rows=5)).rows == ()


def test_without_flops_there_is_neither() -> None:
    bare = Results([handmade(accounting=[device(50 * MS)])])
    assert mfu_sentences(bare) == ()
    assert block(bare, Limits(rows=5)).rows == ()


def test_flops_given_for_a_step_that_is_not_found_are_answered() -> None:
    asked = replace(handmade(accounting=[device(50 * MS)]), options=Options(flops_per_step=1e12))
    (line,) = mfu_sentences(Results([asked]))
    assert "no step was found" in line
