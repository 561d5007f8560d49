"""Which frameworks a report's program uses, so that advice fits (spec §16.13)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.engine_names import ENGINE_FORMS
from nsysflow.analysis.findings.explanation import explanation_of
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.selection.timeline import Timeline

PYTORCH: Final = "pytorch"

KERNELS: Final = {
    PYTORCH: r"\bat::native|\bat_cuda_detail|\bc10::|^triton_(?:poi|red|per|tem)_fused",
    "tensorflow": r"\btensorflow::|_GPU_DT_[A-Z]+\d*_.*kernel$",
    "jax": r"\bxla::|__xla|^(?:loop|input)_\w*fusion|^gemm_fusion_|^wrapped_[a-z]+(?:_\d+)?$",
    "cupy": r"^cupyx?_",
    "fsdp": r"\bchunk_cat_cuda_kernel|\bsplit_with_sizes_copy_out_contiguous_no_cast_kernel",
    "openacc": r"^__pgi_uacc_|^\w+_\d+_gpu(?:__red)?$",
    "openmp": r"^__omp_offloading_|^nvkernel_\w+_F\d+L\d+",
}
"""What full or short names of kernels tell. Those of FSDP pack and unpack its parameters. Eigen's
tell nothing: TensorFlow has them, and PaddlePaddle and onnxruntime too. NVIDIA's compilers name
kernels after function and line: `fill_42_gpu` (OpenACC), `nvkernel_fill_F1L42_2` (OpenMP)."""

RANGES: Final = {
    PYTORCH: r"^aten::|^autograd::|^Torch-Compiled Region|CompiledFxGraph|^enumerate\(DataLoader\)"
    r"|^DeepSpeed\w*\.",
    "jax": r"^Xla\w+:#|^TSL:|^jit_|^pjit",
    "cupy": r"^cupyx?[._]",
    "tensorflow": r"^tf\.|tensorflow",
    "fsdp": r"^(?:FSDP|fsdp)::|FullyShardedDataParallel",
    "lightning": r"^\[pl\]\[(?:profile|module)\]",
    "engine": "|".join(ENGINE_FORMS),
}
"""What names of ranges tell. Engines serve language models: vLLM, SGLang, TensorRT-LLM, ATOM."""

FILES: Final = {
    PYTORCH: r"(?:^|/)torch/",
    "jax": r"(?:^|/)jax(?:lib)?/",
    "cupy": r"(?:^|/)cupyx?/",
    "tensorflow": r"(?:^|/)tensorflow/",
    "trainer": r"(?:^|/)transformers/trainer\.py (?:train|_inner_training_loop|training_step)$",
    "fsdp": r"(?:^|/)torch/distributed/fsdp/\S+ _(?:root_)?(?:pre|post)_(?:forward|backward)",
    "lightning": r"(?:^|/)(?:pytorch_)?lightning/\S+ (?:fit|advance|training_step)$",
}
"""What files and functions of stacks tell. What is only imported has no such function."""

THREADS: Final = {PYTORCH: r"^pt_"}
"""What names of threads tell: `pt_main_thread`, `pt_autograd_0`."""

ROCM: Final = "rocm"
"""AMD's software, which programs of any framework may use: its calls are HIP's."""

CALLS: Final = {ROCM: r"^hip[A-Z]"}
"""What names of calls tell."""

GPUS: Final = {ROCM: r"^AMD\b"}
"""What names of GPUs tell."""

WRAPPERS: Final = ("trainer", "lightning", "fsdp", "engine")
"""They call PyTorch, and have options of their own."""

NATIVE: Final = ("cuda", "openacc", "openmp")
"""What programs without Python show."""

PYTHON: Final = r"(?i)python|\.py\b"
"""The name of a main thread that runs Python."""

COMPILED: Final = r"^triton_(?:poi|red|per|tem)_fused"
"""Kernels that torch.compile generates."""

COMPILED_RANGES: Final = r"^Torch-Compiled Region|CompiledFxGraph"


@dataclass(frozen=True, kw_only=True)
class Frameworks:
    """What a program is written with.

    Attributes:
        names: `pytorch`, `jax`, `cupy`, `tensorflow`, `openacc`, `openmp`, `WRAPPERS`, and `rocm`
            on AMD's GPUs; `cuda` where none is seen.
        compiled: whether torch.compile made some of its kernels.
        native: whether it runs no Python: its main thread has another name, and no framework is
            one of Python's.
    """

    names: tuple[str, ...]
    compiled: bool
    native: bool = False

    @property
    def advice_keys(self) -> tuple[str, ...]:
        """Whose advice replaces that for PyTorch, the best first; none for plain PyTorch."""
        if PYTORCH in self.names:
            return (*(ROCM,) * self.rocm, *("compiled",) * self.compiled)
        return (*self.names, "any")

    @property
    def rocm(self) -> bool:
        """Whether it runs on AMD's GPUs."""
        return ROCM in self.names


def frameworks_of(timeline: Timeline) -> Frameworks:
    """What the names of a report's kernels, ranges and files tell."""
    ops = timeline.events.ops[["name", "short_name"]].unique()
    kernels = pl.concat([ops[name].cast(pl.String) for name in ops.columns]).unique()
    ranges = timeline.events.ranges["name"].unique().cast(pl.String)
    code = pl.concat_str(pl.col("file", "function").cast(pl.String), separator=" ").alias("code")
    frames = timeline.trace.frames.select(code.unique())["code"].drop_nulls()
    threads = timeline.trace.threads["name"].unique().cast(pl.String)
    calls = timeline.events.calls["name"].unique().cast(pl.String)
    gpus = timeline.trace.devices["name"].drop_nulls()
    ran = [*_seen(kernels, KERNELS), *_seen(ranges, RANGES)]
    loaded = [*_seen(frames, FILES), *_seen(threads, THREADS)]
    if ran and PYTORCH not in ran:  # a program of CuPy may import PyTorch for nothing else
        loaded = [name for name in loaded if name != PYTORCH]
    names = [*ran, *loaded, *_seen(calls, CALLS), *_seen(gpus, GPUS)]
    if timeline.trace.collector == "kineto" or any(name in WRAPPERS for name in names):
        names.append(PYTORCH)
    compiled = bool(
        kernels.str.contains(COMPILED).any() or ranges.str.contains(COMPILED_RANGES).any()
    )
    known = tuple(sorted({*names})) or ("cuda",)
    native = {*known} <= {*NATIVE} and _main_threads_are_native(timeline)
    return Frameworks(names=known, compiled=compiled, native=native)


def _main_threads_are_native(timeline: Timeline) -> bool:
    """Whether the main threads of the processes that use a GPU have names, none of them Python's,
    and no stack of Python was recorded."""
    events = timeline.events
    main = events.threads.filter("main").join(events.users, on="process", how="semi")
    names = main["name"].cast(pl.String).drop_nulls()
    stacks = timeline.trace.frames["file"].cast(pl.String).str.contains(PYTHON).any()
    return len(names) > 0 and not names.str.contains(PYTHON).any() and not stacks


def _seen(names: pl.Series, patterns: dict[str, str]) -> Iterator[str]:
    """The frameworks that these names tell of."""
    name = pl.col(names.name)
    seen = names.to_frame().select(
        name.str.contains(pattern).any().alias(framework) for framework, pattern in patterns.items()
    )
    yield from (framework for framework in patterns if seen[framework][0])


def advised(finding: Finding, frameworks: Frameworks) -> Finding:
    """A finding with the advice that fits these frameworks, and whom it is for."""
    advice = explanation_of(finding.rule).advice
    known = (advice[key] for key in frameworks.advice_keys if key in advice)
    lines = finding.change if finding.fits else next(known, finding.change)
    first = [line for name in WRAPPERS if name in frameworks.names for line in advice.get(name, ())]
    return replace(finding, change=(*first, *lines), frameworks=frameworks.names)
