"""What names of kernels say."""

from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.findings.kernels.traits import with_traits
from tests.analysis.findings.kernels import names


def traits_of(name: str) -> dict[str, Any]:
    short = name.removeprefix("void ").partition("<")[0].rpartition("::")[2].partition("(")[0]
    frame = pl.DataFrame({"name": [name], "short_name": [short]})
    return with_traits(frame, ()).row(0, named=True)


@pytest.mark.parametrize("name", names.FP32)
def test_float32_products_are_off_the_tensor_cores(name: str) -> None:
    assert traits_of(name)["simt"]
    assert traits_of(name)["unit"] == "float32"


@pytest.mark.parametrize("name", [*names.TF32, *names.BF16, *names.ODD, names.MUL, names.FLASH])
def test_all_other_kernels_are_not(name: str) -> None:
    assert not traits_of(name)["simt"]


@pytest.mark.parametrize("name", names.TF32)
def test_tf32_is_told_from_16_bits(name: str) -> None:
    assert traits_of(name)["unit"] == "tf32"


@pytest.mark.parametrize("name", names.BF16)
def test_products_of_16_bits_have_the_peak_of_bf16(name: str) -> None:
    assert traits_of(name)["unit"] == "bf16"


def test_fp8_has_a_peak_of_its_own() -> None:
    assert traits_of("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT")["unit"] == "fp8"


@pytest.mark.parametrize(("name", "elements"), names.ODD.items())
def test_tensor_core_kernels_say_to_how_many_elements_they_align(name: str, elements: int) -> None:
    assert traits_of(name)["aligned_to"] == elements


@pytest.mark.parametrize("name", names.FP32)
def test_align1_of_a_float32_kernel_is_no_misalignment(name: str) -> None:
    assert traits_of(name)["aligned_to"] is None


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", 75),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x128x32_execute_kernel", 80),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 90),
        ("cutlass3x_sm100_tensorop_s128x256", 100),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_nn", 75),
        ("triton_poi_fused_add_0", None),
    ],
)
def test_a_name_tells_for_which_generation_it_was_made(name: str, generation: int | None) -> None:
    assert traits_of(name)["generation"] == generation


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (names.DOWN, "cast"),
        (names.UP, "cast"),
        (names.STRIDED, "layout"),
        (names.TO_NHWC, "layout"),
        (names.SOFTMAX, "softmax"),
        (names.ADDCDIV, "update"),
        (names.ADD, None),
        (names.LOG_SOFTMAX, None),
        (names.FOREACH, None),
    ],
)
def test_names_tell_casts_layouts_softmaxes_and_updates_apart(name: str, told: str | None) -> None:
    found = traits_of(name)
    assert [trait for trait in ("cast", "layout", "softmax", "update") if found[trait]] == (
        [told] if told else []
    )
