"""What the names of kernels say: arithmetic, alignment, generation of GPU, casts, layouts.

Patterns are tried on full names as nsys and CUPTI write them. Sources: reports of torch 2.11 with
cuBLAS and cuDNN of CUDA 13.0 on an H200 (2026-11-22), and names that public repositories list for
other GPUs (`ampere_sgemm_128x64_tn`, `cutlass3x_sm100_simt_sgemm_f32_…`, `nvjet_qqtst_…`).
"""

from typing import Final

import polars as pl

from nsysflow.analysis.tables.kernels.classes import Rules, class_of

MATRIX_CLASSES: Final = ("matmul", "conv", "attention")
"""Classes whose time is arithmetic that tensor cores can do."""

CHAIN_CLASSES: Final = ("elementwise", "norm", "copy/cast", "softmax")
"""Classes whose kernels read and write whole tensors and compute next to nothing."""

_SIMT: Final = (
    r"(?i)_ffma_|(?:^|[_:<\s])[sc]gemm|scudnn|implicit_convolve_sgemm<float|f32f32_f32f32_f32"
)
_TENSOR: Final = r"(?i)tf32|tensorop|wmma|1688|16816|[hsi]884"
_ALIGNED_TO: Final = r"tensorop\w*_align(\d+)|_tensor\w*_align[ac]([12])_"
_GENERATION: Final = r"cutlass_(\d\d)_|(?:^|_|cutlass3x_)sm(\d+)_"
_CODE_NAMES: Final = {"ampere_": 80, "turing_": 75, "volta_": 70}
_FP8: Final = r"nvjet_(?:sm\d+_)?[qo]|e4m3|e5m2|fp8"
_TF32: Final = r"tf32|nvjet_(?:sm\d+_)?s[^m]|tensorop_s1688gemm_\d"
_HALF: Final = r"bf16|f16|16816|nvjet_(?:sm\d+_)?[th]|hgemm"
_CAST: Final = (
    r"float16_copy_kernel|float8_copy|unrolled_elementwise_kernel<[^,]*direct_copy_kernel"
    r"|fused__to_copy_\d+$|_convert(?:_fusion)?(?:_\d+)?$"
)
_LAYOUT: Final = (
    r"nchwToNhwc|nhwcToNchw|nhwcAddPadding|convertTensor_kernel|(?:^|[_:\s])transpose"
    r"|[:\s]elementwise_kernel<[^>]*direct_copy_kernel"
)
_SOFTMAX: Final = r"(?i)softmax"
_NO_ATTENTION: Final = (
    r"(?i)log_?softmax|cross_entropy|nll_loss"
    r"|softmax_warp_\w+<[^>]*, (?:\(bool\)1|true), (?:\(bool\)[01]|true|false)>"
)
_UPDATE: Final = r"addcdiv_cuda_kernel"


def with_traits(names: pl.DataFrame, more_classes: Rules) -> pl.DataFrame:
    """`names` (`name`, `short_name`) with what each name says.

    Added are `class`; `simt` (float32 matrix work off the tensor cores); `aligned_to` (elements, of
    tensor-core kernels that say it); `generation` (75 for a kernel of sm_75); `unit` (of `peaks`);
    `cast`, `layout`, `softmax` (of attention, not of a loss), `update` (an optimizer's arithmetic,
    a tensor a kernel).
    """
    name = pl.col("name").cast(pl.String)
    generations = name.str.extract(_GENERATION, 1), name.str.extract(_GENERATION, 2)
    by_code_name = [pl.when(name.str.contains(k)).then(v) for k, v in _CODE_NAMES.items()]
    aligned = name.str.extract(_ALIGNED_TO, 1), name.str.extract(_ALIGNED_TO, 2)
    simt = name.str.contains(_SIMT) & ~name.str.contains(_TENSOR)
    classes = class_of(name, pl.col("short_name").cast(pl.String), more_classes)
    matrix = pl.col("class").is_in([*MATRIX_CLASSES, "triton"])
    return names.with_columns(classes.alias("class")).with_columns(
        simt.alias("simt"),
        pl.coalesce(*aligned).cast(pl.Int64).alias("aligned_to"),
        pl.coalesce(*(g.cast(pl.Int64) for g in generations), *by_code_name).alias("generation"),
        pl.when(simt)
        .then(pl.lit("float32"))
        .when(name.str.contains(_FP8))
        .then(pl.lit("fp8"))
        .when(name.str.contains(_TF32))
        .then(pl.lit("tf32"))
        .when(name.str.contains(_HALF))
        .then(pl.lit("bf16"))
        .alias("unit"),
        name.str.contains(_CAST).alias("cast"),
        (name.str.contains(_LAYOUT) & ~matrix).alias("layout"),
        (name.str.contains(_SOFTMAX) & ~name.str.contains(_NO_ATTENTION)).alias("softmax"),
        name.str.contains(_UPDATE).alias("update"),
    )
