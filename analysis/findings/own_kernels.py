"""Kernels that a program's authors wrote, and what to say of them."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from nsysflow.analysis.findings.frameworks import KERNELS, PYTORCH
from nsysflow.analysis.findings.judged_report import JudgedReport

_PLAIN: Final = r"^(?:void )?[A-Za-z_]\w*\([\w ,*&()\[\]]*\)$"
_TEMPLATE: Final = r"^(?:void )?[A-Za-z_]\w*<[\w ,()-]*>\([\w ,*&()\[\]]*\)$"
_OFFLOADED: Final = rf"{KERNELS['openacc']}|{KERNELS['openmp']}|^cudapy::|\b__main__::"
_LIBRARY: Final = r"(?i)cu(?:blas|dnn|sparse|solver|rand|fft)|ggml|nccl"
"""By full names. A library's functions are in a namespace, or have parameters of its own types: of
the kernels of 56 public nsys reports no other took a percent of its report. `_OFFLOADED` are those
that nvc, Clang (OpenMP, OpenACC) and Numba make of a program's functions."""

_STATE: Final = r"\bcurandState\w*\s*\*"
"""A parameter that programs pass to kernels of their own, which draw random numbers. Those of
cuRAND have other types of it, too."""

_BARE: Final = r"^[A-Za-z_]\w*$"
"""A full name without parameters: of Triton kernels, and of functions that are `extern "C"`."""

_BARE_OF_LIBRARIES: Final = (
    r"(?i)^(?:__|nvjet|(?:kernel_)?cutlass|cask|xmma|fmha|trt|nvfuser|triton_|cupyx?_"
    r"|\w*(?:sm\d\d|maxwell|volta|turing|ampere|hopper|blackwell)_)"
)
"""cuBLAS, cuDNN, TensorRT, CuTe's and PyTorch's compilers, CuPy. `_LIBRARY` leaves others out."""

_BARE_CLASSES: Final = (
    *("other", "norm", "softmax", "optimizer", "embedding"),
    *("reduction", "elementwise", "copy/cast"),
)
"""Bare names of products, convolutions, attention, FFTs and solvers are mostly libraries'."""

_OTHERS_BARE: Final = ("jax", "tensorflow", "rocm", "engine")
"""Their compilers, libraries and engines have kernels with bare names of any class."""

_LIBRARIES: Final[Mapping[str, str]] = {
    "matmul": "cuBLAS (cublasGemmEx), or CUTLASS",
    "conv": "cuDNN",
    "fft": "cuFFT",
    "solver": "cuSOLVER",
    "reduction": "CUB (cub::DeviceReduce)",
}
_LIBRARIES_OF_ROCM: Final[Mapping[str, str]] = {
    "matmul": "rocBLAS, or hipBLASLt",
    "conv": "MIOpen",
    "fft": "rocFFT",
    "solver": "rocSOLVER",
    "reduction": "hipCUB",
}
BESIDE_TRITON: Final = "compare it with what torch.compile makes of the same operations in PyTorch"
_ANY: Final = "{} for products, {} for convolutions, {} for sums, scans and sorts"


def own_kernels(subject: JudgedReport, kernels: pl.DataFrame) -> pl.DataFrame:
    """Those of these kernels that the program's authors wrote, as far as names tell.

    Extensions of PyTorch are others' templates, too: of its programs only plain functions count,
    and Triton kernels, which may be of a package for Triton.
    """
    name, kind = pl.col("name").cast(pl.String), pl.col("class")
    own = name.str.contains(_PLAIN) | name.str.contains(_OFFLOADED)
    if PYTORCH not in subject.frameworks.names:
        own = own | (name.str.contains(_TEMPLATE) & (kind == "other"))
    if not any(each in subject.frameworks.names for each in _OTHERS_BARE):
        bare = name.str.contains(_BARE) & ~name.str.contains(_BARE_OF_LIBRARIES)
        own = own | (bare & kind.is_in(_BARE_CLASSES))
    names = kernels.select("name", "class").unique()
    library = name.str.replace_all(_STATE, "").str.contains(_LIBRARY)
    mine = names.filter(own & ~library)
    return kernels.join(mine, on=["name", "class"], how="semi", maintain_order="left")


def is_triton(subject: JudgedReport, own: pl.DataFrame, name: str) -> bool:
    """Whether those of one's own kernels that have this short name are written in Triton: their
    full names are bare, and the program is PyTorch's."""
    full = own.filter(pl.col("short_name").cast(pl.String) == name)["name"].cast(pl.String)
    bare = full.str.contains(_BARE) & ~full.str.contains(_OFFLOADED)
    return PYTORCH in subject.frameworks.names and bool(bare.all())


def own_in_words(*, triton: bool, several: bool) -> str:
    """`a kernel of your own`, or `Triton kernels`: those may be of a package."""
    if triton:
        return "Triton kernels" if several else "a Triton kernel"
    return "kernels of your own" if several else "a kernel of your own"


def helps_of_own(
    subject: JudgedReport, kind: str, name: str, *, triton: bool = False
) -> tuple[str, ...]:
    """What helps with a kernel of one's own.

    Args:
        subject: the judged part of a report.
        kind: its class.
        name: its short name.
        triton: whether it is written in Triton.
    """
    rocm = subject.frameworks.rocm
    libraries = _LIBRARIES_OF_ROCM if rocm else _LIBRARIES
    any_of = ("rocBLAS", "MIOpen", "hipCUB") if rocm else ("cuBLAS", "cuDNN", "CUB")
    tool = (
        "ROCm Compute Profiler: rocprof-compute profile"
        if rocm
        else f"Nsight Compute: ncu --set full -k regex:{name}"
    )
    compare = f"compare it with a library's: {libraries.get(kind, _ANY.format(*any_of))}"
    return (
        BESIDE_TRITON if triton else compare,
        f"see how far it is from the GPU's peaks, and what it waits for, in {tool}",
    )
