"""The class of a kernel, and its functor, by its name (spec §6). The rules of classes are data:
kernel_classes.toml.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.exceptions import ComputeError

from nsysflow.analysis.events.classes import NONE, communication_classes
from nsysflow.analysis.frames.columns import DescribedRows
from nsysflow.base.errors import SettingsError

OTHER: Final = "other"

Rules = tuple[tuple[str, str], ...]
"""(class, pattern) in order of precedence."""

_SIMT: Final = (
    r"(?i)_ffma_|(?:^|[_:<\s])[sc]gemm|scudnn|implicit_convolve_sgemm<float|f32f32_f32f32_f32"
    r"|fft2d_[rc]2[cr]|(?:[dw]grad|winograd)\w*<float|convolve\w*_float"
)
_NOT_SIMT: Final = r"(?i)tf32|tensorop|wmma|1688|16816|[hsi]884|grouped_direct|depthwise|sgemm<__"
_FP8: Final = r"nvjet_(?:sm\d+_)?[qo]|e4m3|e5m2|fp8"
_QUANTIZED: Final = (
    rf"(?i:{_FP8}|fp4|int4|int8|w4a|w8a|awq|gptq|marlin)"
    r"|^Cijk_[A-Za-z]+_[A-Za-z]+_(?:F8|B8|I8|F4)"
)
_TF32: Final = r"tf32|nvjet_(?:sm\d+_)?s[^m]|tensorop_s1688gemm_\d"
_BF16: Final = r"bf16|nvjet_(?:sm\d+_)?t"
_FP16: Final = r"f16|fp16|h884|h1688|hgemm|nvjet_(?:sm\d+_)?h"
_HALF: Final = "16816"
"""The shape of products of 16-bit numbers, of either kind."""

_PRODUCT: Final = r"\bGemmKernel\b"
"""In the full name of a product that a namespace names: `m_grouped_fp8_ptp128c::GemmKernel`, as in
DeepSeek's published profile."""

_FUNCTOR: Final = r"\w*[Ff]unctor\w*|\w+Ops\b"
_ANY_FUNCTOR: Final = ("BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "UnaryFunctor")
"""PyTorch's functors that call another one, which stands behind them in a name."""

_OF_LAMBDA: Final = (
    r"\w+(?:<[^<>()]*(?:<[^<>()]*>[^<>()]*)*>)?(?:::operator ?\(\))?"
    r"\([^()]*\)(?: const)?::[\[{]lambda"
)
"""A function with the lambda in it: `silu_kernel(at::TensorIteratorBase &)::[lambda…`."""

_ANY_FUNCTION: Final = ("gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "operator")
"""PyTorch's functions that launch any other one, and the name of all calls of objects."""

_EXAMPLE: Final = pl.Series(["vectorized_elementwise_kernel"])

_EXAMPLE_FILE: Final = "[[class]]\n  name = \"attention\"\n  pattern = '^my_attn_'"


@cache
def kernel_classes() -> Rules:
    """The rules of kernel_classes.toml."""
    text = (
        files("nsysflow.analysis.events")
        .joinpath("kernel_classes.toml")
        .read_text(encoding="utf-8")
    )
    return _rules(tomllib.loads(text))


def read_kernel_classes(file: Path) -> Rules:
    """The rules of a user's file, in the form of kernel_classes.toml.

    Raises:
        SettingsError: the file cannot be read, or holds something else.
    """
    try:
        rules = _rules(tomllib.loads(file.read_text(encoding="utf-8")))
        for _, pattern in rules:
            _EXAMPLE.str.contains(pattern)
    except OSError as error:
        seen = f"{file} cannot be read: {error.strerror}"
        raise SettingsError(seen, "Name a TOML file with kernel classes") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        seen = f"{file} holds no kernel classes ({type(error).__name__}: {error})"
        raise SettingsError(seen, "It must hold classes such as", _EXAMPLE_FILE) from error
    except ComputeError as error:
        seen = (
            f"{file} holds a pattern that is no regular expression ({' '.join(str(error).split())})"
        )
        raise SettingsError(seen, "It must hold classes such as", _EXAMPLE_FILE) from error
    return rules


def class_of(name: pl.Expr, short_name: pl.Expr, more: Rules = ()) -> pl.Expr:
    """The class of a kernel: communication, else the first whose pattern matches, else a product
    if it is CUTLASS's, else `other`.

    Args:
        name: full, with namespace.
        short_name: without namespace and template arguments.
        more: rules on the short name that come before ours and after communication.
    """
    both = pl.struct(name.alias("name"), short_name.alias("short_name"))
    return both.map_batches(
        lambda kernels: _CLASSES.of(kernels.struct.unnest(), more)["class"], return_dtype=pl.String
    )


def functor_of(name: pl.Expr) -> pl.Expr:
    """What a kernel for any function applies, by its full name: `silu_kernel`, `CUDAFunctor_add`;
    empty where the name does not tell."""
    functors = _words(name, _FUNCTOR, _ANY_FUNCTOR)
    functions = _words(name, _OF_LAMBDA, _ANY_FUNCTION)
    return pl.coalesce(functors.list.last(), functions.list.first(), pl.lit(""))


def _words(name: pl.Expr, pattern: str, but: Sequence[str]) -> pl.Expr:
    """The words with which the matches of a pattern begin, in order, but some."""
    word = pl.element().str.extract(r"^(\w+)")
    return name.str.extract_all(pattern).list.eval(word.filter(~word.is_in([*but])))


def off_tensor_cores(name: pl.Expr) -> pl.Expr:
    """Whether a kernel multiplies float32 numbers beside the tensor cores, by its full name."""
    return name.str.contains(_SIMT) & ~name.str.contains(_NOT_SIMT)


def is_quantized(name: pl.Expr) -> pl.Expr:
    """Whether a product has factors of 8 bits or fewer, by its full name."""
    return name.str.contains(_QUANTIZED)


def unit_by_name(name: pl.Expr) -> pl.Expr:
    """The arithmetic that a kernel's full name states, one of `peaks.UNITS`; else null."""
    return (
        pl.when(off_tensor_cores(name))
        .then(pl.lit("float32"))
        .when(name.str.contains(_FP8))
        .then(pl.lit("fp8"))
        .when(name.str.contains(_TF32))
        .then(pl.lit("tf32"))
        .when(name.str.contains(_BF16))
        .then(pl.lit("bf16"))
        .when(name.str.contains(_FP16))
        .then(pl.lit("fp16"))
        .when(name.str.contains(_HALF))
        .then(pl.lit("bf16"))
    )


def _classes(names: pl.DataFrame, more: Rules) -> pl.DataFrame:
    """The `class` of each `name` and `short_name`."""
    communication = communication_classes(names)
    matched = [
        pl.when(pl.col("short_name").str.contains(pattern)).then(pl.lit(kind))
        for kind, pattern in (*more, *kernel_classes())
    ]
    product = pl.when(pl.col("name").str.contains(_PRODUCT)).then(pl.lit("matmul"))
    known = pl.when(communication != NONE).then(communication)
    kind = pl.coalesce(known, *matched, product, pl.lit(OTHER))
    return names.select(kind.alias("class"))


_CLASSES: Final = DescribedRows(_classes, pl.Schema({"class": pl.String()}))


def _rules(table: dict[str, Any]) -> Rules:
    rules = tuple((row["name"], row["pattern"]) for row in table["class"])
    if not all(isinstance(text, str) for rule in rules for text in rule):
        msg = "a name or pattern is not text"
        raise TypeError(msg)
    return rules
