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
_ANY: Final = "{} for products, {} for convolutions, {} for sums, scans and sorts"


def own_kernels(subject: JudgedReport, kernels: pl.DataFrame) -> pl.DataFrame:
    """Those of these kernels that the program's authors wrote, as far as names tell.

    Extensions of PyTorch are others' templates, too: of its programs only plain functions count.
    """
    name = pl.col("name").cast(pl.String)
    own = name.str.contains(_PLAIN) | name.str.contains(_OFFLOADED)
    if PYTORCH not in subject.frameworks.names:
        own = own | (name.str.contains(_TEMPLATE) & (pl.col("class") == "other"))
    names = kernels.select("name", "class").unique()
    library = name.str.replace_all(_STATE, "").str.contains(_LIBRARY)
    mine = names.filter(own & ~library)
    return kernels.join(mine, on=["name", "class"], how="semi")


def helps_of_own(subject: JudgedReport, kind: str, name: str) -> tuple[str, ...]:
    """What helps with a kernel of one's own.

    Args:
        subject: the judged part of a report.
        kind: its class.
        name: its short name.
    """
    rocm = subject.frameworks.rocm
    libraries = _LIBRARIES_OF_ROCM if rocm else _LIBRARIES
    any_of = ("rocBLAS", "MIOpen", "hipCUB") if rocm else ("cuBLAS", "cuDNN", "CUB")
    tool = (
        "ROCm Compute Profiler: rocprof-compute profile"
        if rocm
        else f"Nsight Compute: ncu --set full -k regex:{name}"
    )
    return (
        f"compare it with a library's: {libraries.get(kind, _ANY.format(*any_of))}",
        f"see how far it is from the GPU's peaks, and what it waits for, in {tool}",
    )
