"""What the judged kernels do, by their names and their order, and what the GPUs can do."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import (
    Rules,
    class_of,
    off_tensor_cores,
    unit_by_name,
)
from nsysflow.analysis.events.operators import Arguments, arguments, of_operators
from nsysflow.analysis.frames.columns import DescribedRows, repeated
from nsysflow.analysis.phases.attribution import PlacedOps
from nsysflow.analysis.selection.view import View
from nsysflow.base.peaks import PEAKS, Unit

_CAPABILITIES: Final[Mapping[str, int]] = {
    r"\bG?B[123]00\b": 100,
    r"\bG?H(?:100|200|800|20)\b": 90,
    r"RTX (?:PRO|50\d\d)": 120,
    r"\bL(?:4|20|40S?)\b|RTX 40\d\d|\bAda\b": 89,
    r"\bA(?:10G?|16|2|40)\b|RTX 30\d\d|RTX A\d+": 86,
    r"\bA(?:100|800|30)\b": 80,
    r"\bT4\b|RTX 20\d\d|Quadro RTX|TITAN RTX": 75,
    r"\bV100|TITAN V": 70,
    r"\bGTX\b|\bP(?:100|40|4)\b": 61,
}
"""Compute capability by the driver's name of a GPU: developer.nvidia.com/cuda-gpus. A GTX 16 has
75, but no tensor cores: it counts as those before Volta."""

VOLTA: Final = 70
"""The first GPUs with tensor cores, for float16 alone."""

AMPERE: Final = 80
"""The first ones whose tensor cores take TF32 and bfloat16."""


def capability(gpu: str, generations: pl.Series) -> int | None:
    """The compute capability (90 for 9.0) of a GPU.

    Args:
        gpu: the driver's name; may be empty.
        generations: those that its kernels name, which tell where the name does not.
    """
    names = pl.Series([gpu])
    for pattern, known in _CAPABILITIES.items():
        if names.str.contains(pattern).any():
            return known
    newest = generations.max()
    return newest if isinstance(newest, int) else None


def lacks_bfloat16(gpus: Iterable[str | None]) -> bool:
    """Whether the names of the GPUs say that none has tensor cores for bfloat16.

    A kernel of an older GPU runs on newer ones, too: only the name tells.
    """
    known = [capability(gpu or "", pl.Series(dtype=pl.Int64)) for gpu in gpus]
    return bool(known) and all(own is not None and own < AMPERE for own in known)


def peak_ratio(gpu: str, slow: Unit, fast: Unit) -> float | None:
    """How many times the peak of one arithmetic is another's; None for a GPU without peaks."""
    peaks = PEAKS.get(gpu, {})
    return peaks[fast] / peaks[slow] if slow in peaks and fast in peaks else None


MATRIX_CLASSES: Final = ("matmul", "conv", "attention")
"""Classes whose time is arithmetic that tensor cores can do."""

CHAIN_CLASSES: Final = ("elementwise", "norm", "copy/cast", "softmax")
"""Classes whose kernels read and write whole tensors and compute next to nothing."""

CONCATENATES: Final = r"(?i)CatArray|concatenate_kernel|cupy_concatenate"
"""Kernels of PyTorch, and CuPy's."""

_ALIGNED_TO: Final = r"tensorop\w*_align(\d+)|_tensor\w*_align[ac]([12])_"
_GENERATION: Final = r"cutlass_(\d\d)_|(?:^|_|cutlass3x_)sm(\d+)_"
_CODE_NAMES: Final = {"ampere_": 80, "turing_": 75, "volta_": 70}
_CAST: Final = (
    r"float16_copy_kernel|float8_copy|unrolled_elementwise_kernel<[^,]*direct_copy_kernel"
    r"|fused__to_copy_\d+$|_convert(?:_fusion)?(?:_\d+)?$"
)
_FROM_INTEGERS: Final = (
    r"unrolled_elementwise_kernel<[^,]*direct_copy_kernel[^,]*lambda\((?:c10::)?(?:BFloat16|Half)\)"
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
_EVERY: Final = r"\breduce_kernel<.*\band_kernel_cuda\("
_DOUBLE: Final = r"(?i)\bdouble\b|(?:\b|_)f64|dgemm|_d(?:884|16816)"
_NOT_DOUBLE: Final = r"(?i)\b(?:float|half|bfloat16|__half|__nv_bfloat16)\b"
_UPDATE: Final = r"addcdiv_cuda_kernel"
_COMPLEX: Final = r"\bc10::complex<"
_BACKWARD: Final = r"(?i)backward"


def with_traits(names: pl.DataFrame, more_classes: Rules) -> pl.DataFrame:
    """`names` (`name`, `short_name`) with what each name says.

    Added are `class`; `simt` (float32 matrix work off the tensor cores); `aligned_to` (elements, of
    tensor-core kernels that say it); `generation` (75 for a kernel of sm_75); `unit` (of `peaks`);
    `cast`, `from_integers` (a cast to 16 bits that is not of float32, which has a kernel of its
    own), `layout`, `softmax` (of attention, not of a loss), `every` (PyTorch's `all`, by which its
    own attention finds rows that are masked whole), `double` (computes on float64 tensors),
    `update` (an optimizer's arithmetic, a tensor a kernel), `complex` (PyTorch's of complex
    numbers).
    """
    kind = class_of(pl.col("name"), pl.col("short_name"), more_classes).alias("class")
    text = names.select(pl.col("name", "short_name").cast(pl.String))
    described = names.with_columns(text.select(kind)).hstack(_TRAITS.of(text[["name"]]))
    matrix = pl.col("class").is_in([*MATRIX_CLASSES, "triton"])
    return described.with_columns(pl.col("layout") & ~matrix)


def _traits(names: pl.DataFrame) -> pl.DataFrame:
    """What each full name says, apart from its class."""
    name = pl.col("name")
    generations = name.str.extract(_GENERATION, 1), name.str.extract(_GENERATION, 2)
    by_code_name = [pl.when(name.str.contains(k)).then(v) for k, v in _CODE_NAMES.items()]
    aligned = name.str.extract(_ALIGNED_TO, 1), name.str.extract(_ALIGNED_TO, 2)
    return names.select(
        off_tensor_cores(name).alias("simt"),
        pl.coalesce(*aligned).cast(pl.Int64).alias("aligned_to"),
        pl.coalesce(*(g.cast(pl.Int64) for g in generations), *by_code_name).alias("generation"),
        unit_by_name(name).alias("unit"),
        name.str.contains(_CAST).alias("cast"),
        name.str.contains(_FROM_INTEGERS).alias("from_integers"),
        name.str.contains(_LAYOUT).alias("layout"),
        (name.str.contains(_SOFTMAX) & ~name.str.contains(_NO_ATTENTION)).alias("softmax"),
        name.str.contains(_EVERY).alias("every"),
        (name.str.contains(_DOUBLE) & ~name.str.contains(_NOT_DOUBLE)).alias("double"),
        name.str.contains(_UPDATE).alias("update"),
        name.str.contains(_COMPLEX).alias("complex"),
    )


_TRAITS: Final = DescribedRows(
    _traits,
    pl.Schema(
        {
            "simt": pl.Boolean(),
            "aligned_to": pl.Int64(),
            "generation": pl.Int64(),
            "unit": pl.String(),
            "cast": pl.Boolean(),
            "from_integers": pl.Boolean(),
            "layout": pl.Boolean(),
            "softmax": pl.Boolean(),
            "every": pl.Boolean(),
            "double": pl.Boolean(),
            "update": pl.Boolean(),
            "complex": pl.Boolean(),
        }
    ),
)


TINY_NS: Final = 5_000
"""A kernel shorter than this is mostly its own start and end: an empty one takes 1 to 2 us of the
GPU, and 5 us of bandwidth are only 20 MB on an H200."""

TINY_RUN: Final = 20
"""So many tiny kernels back to back are a loop over tensors, and not the glue of a layer."""

MOST_GLUE: Final = 16
"""Attention has at most so many kernels between its two matmuls: scale, mask, casts, softmax,
dropout and copies were 11 in eager PyTorch with a mask under autocast."""

FEWEST_UPDATES: Final = 8
"""An optimizer's run updates at least so many tensors one by one."""

OPTIMIZER: Final = r"(?i)optim"
"""Ranges of optimizers: `optimizer`, `Optimizer.step#AdamW.step`, `optim_step`."""


def kernels_in_order(view: View) -> pl.DataFrame:
    """The judged kernels, stream by stream in the order in which they ran.

    Columns: `op` (its row in the operations), `process`, `device`, `node`, `thread_no` (that
    launched it), `detail` (its row in SHAPES), `shape` (of its operator, a row in OPERATOR_SHAPES),
    `start_ns`, `ns`, `name`, `short_name`, those of `with_traits`, `lane` (a number per stream) and
    `job`: the one that a kernel is part of, `attention` (between the two matmuls of one that is not
    fused), `optimizer` (tensor by tensor), `tiny` (a run of kernels shorter than `TINY_NS`),
    `chain` (of neighbours that only move memory), or null. `run` numbers neighbours of one job.
    """
    kernels = _by_lane(view.ops, view.trace.operators)
    pair = ["name", "short_name"]
    names = with_traits(kernels.select(pair).unique(), view.options.kernel_classes)
    kernels = kernels.join(names, on=pair, how="left", maintain_order="left")
    tuned = _in_optimizer(kernels, view)
    kernels = kernels.with_columns(tuned.alias("tuned"))
    kernels = kernels.with_columns(_attention(kernels).alias("attention"))
    kernels = kernels.with_columns(_updates(kernels).alias("optimizer"))
    kernels = kernels.with_columns(_tiny(kernels).alias("tiny"))
    kernels = kernels.with_columns(_job().alias("job"))
    run = pl.struct("lane", "job").rle_id()
    return kernels.with_columns(run.alias("run")).drop("tuned", "attention", "optimizer", "tiny")


def _by_lane(ops: PlacedOps, operators: pl.DataFrame) -> pl.DataFrame:
    """The kernels, stream by stream; operations are in the order of their start."""
    stream = ["device_no", "process", "stream"]
    ns = (pl.col("end_ns") - pl.col("start_ns")).clip(0).alias("ns")
    columns = (
        "op",
        "process",
        "device",
        "node",
        "thread_no",
        "detail",
        "start_ns",
        "name",
        "short_name",
    )
    rows = ops.lazy().filter(pl.col("kind") == "kernel")
    kernels = rows.select(*columns, "correlation", ns, "device_no", "stream").collect()
    kernels = _with_shape(kernels, operators)
    kept = [*columns, "shape", "ns", "lane"]
    lanes = kernels.select(stream).unique().sort(stream, nulls_last=True).with_row_index("lane")
    if len(lanes) < 2:
        return kernels.with_columns(pl.lit(0, pl.UInt32).alias("lane")).select(kept)
    numbered = kernels.join(lanes, on=stream, how="left", maintain_order="left", nulls_equal=True)
    return numbered[kept].sort("lane", maintain_order=True)


def _with_shape(kernels: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Plus `shape`; null for all where no shapes were recorded."""
    if operators.is_empty():
        return kernels.with_columns(pl.lit(None, pl.UInt32).alias("shape"))
    rows = kernels.with_row_index("row")
    key = ["row", "process", "correlation", "detail"]
    shapes = of_operators(rows[key], operators)[["row", "shape"]]
    return rows.join(shapes, on="row", how="left", maintain_order="left").drop("row")


NAMED_OPERATORS: Final = 2
"""So many operators are named in a finding."""


def largest_operators(view: View, kernels: pl.DataFrame) -> Iterator[tuple[str, Arguments, int]]:
    """The operators with most of the time of these kernels, with their arguments and that time in
    ns; none where no shapes were recorded."""
    sums = kernels.drop_nulls("shape").group_by("shape").agg(pl.col("ns").sum())
    ranked = sums.sort("ns", "shape", descending=[True, False]).head(NAMED_OPERATORS)
    for shape, ns in ranked.rows():
        name, *written = view.trace.operator_shapes.row(shape)
        yield name, arguments(*written) or (), ns


def _job() -> pl.Expr:
    # torch.compile leaves complex numbers to PyTorch's own kernels
    moves = pl.col("class").is_in(CHAIN_CLASSES) & ~pl.col("complex")
    return (
        pl.when("attention")
        .then(pl.lit("attention"))
        .when("optimizer")
        .then(pl.lit("optimizer"))
        .when("tiny")
        .then(pl.lit("tiny"))
        .when(moves)
        .then(pl.lit("chain"))
    )


def run_of(kernels: pl.DataFrame, member: pl.Expr) -> pl.DataFrame:
    """Per maximal run of members on a stream: `first` and `last` row, `count`."""
    numbered = kernels.select("lane", member.fill_null(value=False).alias("member")).with_columns(
        pl.struct("lane", "member").rle_id().alias("run")
    )
    rows = numbered.with_row_index("row").filter("member")
    return rows.group_by("run", maintain_order=True).agg(
        pl.col("row").first().alias("first"),
        pl.col("row").last().alias("last"),
        pl.len().cast(pl.Int64).alias("count"),
    )


def covered(kernels: pl.DataFrame, runs: pl.DataFrame) -> pl.Series:
    """Whether each row lies in one of the runs."""
    if runs.is_empty():
        return repeated(value=False, length=len(kernels))
    edges = repeated(0, len(kernels) + 1, pl.Int32)
    edges = edges.scatter(runs["first"], 1)
    ends = repeated(0, len(kernels) + 1, pl.Int32).scatter(runs["last"] + 1, 1)
    return (edges - ends).cum_sum().head(len(kernels)) > 0


def is_glue() -> pl.Expr:
    """Whether a kernel may stand between two matmuls of an attention."""
    triton = (pl.col("class") == "triton").fill_null(value=False)
    return pl.col("class").is_in(CHAIN_CLASSES) | triton | pl.col("every")


def _attention(kernels: pl.DataFrame) -> pl.Series:
    """The kernels between two matmuls of which one is a softmax."""
    runs = run_of(kernels, is_glue()).filter(pl.col("count") <= MOST_GLUE)
    softmaxes = kernels["softmax"].arg_true()
    holds = softmaxes.search_sorted(runs["last"], side="right") > softmaxes.search_sorted(
        runs["first"]
    )
    matmul = (kernels["class"] == "matmul").extend_constant(value=False, n=1)
    lanes = kernels["lane"].extend_constant(None, n=1)
    before = runs.select(pl.when(pl.col("first") > 0).then(pl.col("first") - 1)).to_series()
    before = before.fill_null(len(kernels))
    after = runs["last"] + 1
    here = lanes[runs["first"]]
    between = (
        matmul[before]
        & matmul[after]
        & (lanes[before] == here).fill_null(value=False)
        & (lanes[after] == here).fill_null(value=False)
    )
    return covered(kernels, runs.filter(holds & between))


def _in_optimizer(kernels: pl.DataFrame, view: View) -> pl.Series:
    """Whether each kernel was launched in a range that is called an optimizer."""
    named = view.attribution.paths["joined"].str.contains(OPTIMIZER)
    path = view.attribution.path_of(kernels["node"])
    return named[path].fill_null(value=False)


def _updates(kernels: pl.DataFrame) -> pl.Series:
    """Kernels that update one tensor each: in an optimizer's range, or in a run that has an
    optimizer's arithmetic."""
    moves = pl.col("class").is_in(CHAIN_CLASSES)
    runs = run_of(kernels, moves)
    updates = kernels["update"].arg_true()
    count = updates.search_sorted(runs["last"], side="right") - updates.search_sorted(runs["first"])
    runs = runs.filter(count.cast(pl.Int64) >= FEWEST_UPDATES)
    return covered(kernels, runs) | (kernels["tuned"] & kernels["class"].is_in(CHAIN_CLASSES))


def _tiny(kernels: pl.DataFrame) -> pl.Series:
    """Kernels in a run of `TINY_RUN` that are shorter than `TINY_NS`, with no longer pause."""
    end = (pl.col("start_ns") + pl.col("ns")).shift(1)
    paused = (pl.col("start_ns") - end > TINY_NS).fill_null(value=False)
    stretch = paused.cum_sum()
    lanes = kernels.with_columns(pl.struct(pl.col("lane"), stretch).rle_id().alias("lane"))
    runs = run_of(lanes, (pl.col("ns") < TINY_NS) & (pl.col("class") != "comm"))
    return covered(kernels, runs.filter(pl.col("count") >= TINY_RUN))
