"""Kernels by class: names that substring tests misfile are in the right class (spec §6.3)."""

from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.events.kernel_classes import class_of, kernel_classes, read_kernel_classes
from nsysflow.base.errors import SettingsError

NAMES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "comm",
    "cross_device_reduce_1stage": "comm",
    "flash_fwd_kernel": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": "attention",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN": "matmul",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3": "matmul",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "matmul",
    "dot_kernel": "matmul",
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8": "matmul",
    "GemmUniversal": "matmul",
    "cutlass_3x_gemm_fp8_blockwise": "matmul",
    "DeviceGemmFp4GemmSm100": "matmul",
    "FlashAttnFwdSm90": "attention",
    "Sm100FmhaFwdKernelTmaWarpspecialized": "attention",
    "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x5_nhwc_align8": "conv",
    "ImplicitGemmConvolution": "conv",
    "ParallelForAgent": "elementwise",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw": "conv",
    "vectorized_layer_norm_kernel": "norm",
    "GammaBetaBackwardCUDAKernelTemplate": "norm",
    "cunn_SoftMaxForward": "softmax",
    "reduce_kernel": "reduction",
    "multi_tensor_apply_kernel": "optimizer",
    "embedding_backward_feature_kernel": "embedding",
    "CatArrayBatchedCopy": "copy/cast",
    "triton_poi_fused_add_0": "triton",
    "triton_poi_fused_all_reduce_0": "triton",
    "kernel_gemm_rs_producer_persistent": "gemm+comm",
    "vectorized_elementwise_kernel": "elementwise",
    "record_param_comms": "other",
    "my_kernel": "other",
    "Kernel2": "other",
    "kernel": "other",
    "device_kernel": "other",
}
"""Among them what a substring test on `mm` or `dot` misfiles: `GammaBeta…`, `record_param_comms`,
flash attention. A generic name, which stays where its arguments say no more, is in no class."""


def test_a_kernel_is_filed_under_its_class() -> None:
    names = pl.DataFrame({"name": [*NAMES]})
    found = names.select(class_of(pl.col("name"), pl.col("name"))).to_series()
    assert dict(zip(NAMES, found, strict=True)) == NAMES


def test_no_pattern_matches_an_empty_name() -> None:
    names = pl.Series(["", "x"])
    for name, pattern in kernel_classes():
        assert not names.str.contains(pattern).any(), name


def test_rules_of_a_user_come_before_ours_and_after_communication(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text("[[class]]\nname = 'mine'\npattern = '^(nccl|my_|dot)'\n")
    rules = read_kernel_classes(file)
    names = pl.DataFrame({"name": ["my_kernel", "dot_kernel", "ncclDevKernel", "layer_norm"]})
    filed = names.select(class_of(pl.col("name"), pl.col("name"), rules)).to_series().to_list()
    assert filed == ["mine", "mine", "comm", "norm"]


@pytest.mark.parametrize(
    "text",
    ["[[class]]\nname = 'x'\n", "class = 3\n", "[[class\n", "[[class]]\nname='x'\npattern='('\n"],
)
def test_a_file_without_usable_rules_is_named_with_their_form(tmp_path: Path, text: str) -> None:
    file = tmp_path / "classes.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"\[\[class\]\]") as raised:
        read_kernel_classes(file)
    assert str(file) in str(raised.value)
