"""Attention that is not fused, masks that it would not need, and caches that are moved about.

* `unfused-attention`: a softmax between two matmuls, each of them a pass over all scores.
* `fp32-attention`: attention is fused, but computes in float32.
* `causal-mask`: a triangular mask is made for each layer, where an argument would do.
* `cache-reordered`: beam search gathers the caches of all layers by beam, at each token.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import unit_by_name
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.host_functions import stacks_at, stacks_with
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
    trains,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, MOST_GLUE, covered, is_glue, run_of
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.launching_lines import of_the_same_lines
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import duration, percent

CHANGE_OF_ATTENTION: Final = (
    "torch.nn.functional.scaled_dot_product_attention(q, k, v), in 16 bits;"
    " where the mask is causal, with is_causal=True",
    "Hugging Face: from_pretrained(..., attn_implementation='sdpa')",
    "a mask or bias of its own: torch.nn.attention.flex_attention, compiled; or FlashAttention",
)

SAFE: Final = "isneginf_kernel_impl"
"""Of the softmax of PyTorch's own attention, which no program writes: rows that are masked whole
become 0 (since 2.5)."""

CHANGE_OF_MATH: Final = (
    "switch the fused ones on: torch.backends.cuda.enable_flash_sdp, enable_mem_efficient_sdp and"
    " enable_cudnn_sdp(True); no sdpa_kernel(SDPBackend.MATH)",
    "if they are on, call it within sdpa_kernel([SDPBackend.FLASH_ATTENTION]): a warning says why"
    " it cannot run. It needs 16 bits, four dimensions, and heads of at most 256",
    "avoid masks that rule fused kernels out: a mask that needs a gradient, or one beside"
    " enable_gqa=True. Flash attention takes only is_causal=True",
)
"""For scaled_dot_product_attention that runs PyTorch's own products and softmax. With the fused
ones switched off, 12 layers took 49.0 ms a step, and 39.1 with them (H200, 2026-11-30)."""

CHANGE_OF_SUMS: Final = (
    "graph attention, whose scores are sums of two vectors: if most of them are masked, compute"
    " those of the edges alone, as PyTorch Geometric's GATConv does",
    "else torch.nn.attention.flex_attention with a score_mod, compiled",
)

CHANGE_OF_WEIGHTS: Final = (
    "nn.MultiheadAttention returns its weights, averaged over the heads, unless it is told not to:"
    " self.attention(q, k, v, need_weights=False)",
    "where the mask is causal: attn_mask=mask, is_causal=True",
)
"""Eight layers of it took 55.5 ms a step, and 32.9 without the weights (H200, 2026-11-30)."""

RETURNS_WEIGHTS: Final = r"torch/nn/functional\.py multi_head_attention_forward$"
"""The function of nn.MultiheadAttention. Without the weights it calls fused attention."""

VECTOR: Final = r"(?i)gemv"
"""Products of a matrix and a vector: they make no matrix of scores."""

OF_SUMS: Final = 4
"""The kernels between take longer than such products by this factor, and more: 11 times in pyGAT.
With one query the product reads all keys, and the scores are few."""

_BACKWARD: Final = r"(?i)backward"


def unfused_attention(subject: JudgedReport) -> Iterator[Finding]:
    """All that fused attention replaces: scale, mask, casts, softmax, dropout, and the matmuls.

    Fused attention keeps the scores on the chip. Its matmuls no longer write or read them, and how
    much faster they are then no trace can know: on an H100 a layer of 2048 tokens took 7.8 ms so,
    of which 4.8 ms between the matmuls, and 1.7 ms fused (2026-11-25). So the bound is that nothing
    of it takes any time.
    """
    gone = replaced_by_fused(subject.kernels)
    math = _is_math(subject.kernels.filter(gone))
    rows = subject.kernels.filter(of_the_same_lines(subject, gone) if math else gone)
    rows = rows.with_columns(pl.col("ns").alias("gain_ns"))
    if rows.is_empty():
        return
    between = rows.filter(pl.col("job") == "attention")
    matmuls = rows.filter(pl.col("class") == "matmul")
    count = subject.per_step(between["run"].n_unique())
    averages = _averages(subject, between)
    if math:
        change: tuple[str, ...] = CHANGE_OF_MATH
        what, share = "scaled_dot_product_attention is not fused", share_of_kernels(subject, rows)
    elif averages is not None:
        change = CHANGE_OF_WEIGHTS
        what = "nn.MultiheadAttention is not fused, as it returns its weights"
        share = share_of_kernels(subject, between)
        rows = pl.concat([rows, averages])
    else:
        change = CHANGE_OF_SUMS if _adds_scores(rows) else CHANGE_OF_ATTENTION
        what, share = "attention is not fused", share_of_kernels(subject, between)
    where = "" if math else " between its matmuls"
    finding = kernel_finding(
        subject,
        rows,
        rule="unfused-attention",
        title=f"{what}: {percent(share)} of kernel time{where}",
        change=change,
        evidence=(
            f"matmul, softmax, matmul: {count:,} times{subject.a_step}",
            f"between the matmuls: {in_words(subject, between)}",
            f"its matmuls take {duration(subject.worst_ns(matmuls, 'ns'))}, and less when fused",
            *(() if math else (LAUNCHES_TOO,)),
        ),
    )
    if not math:
        yield finding
        return
    counted = counting_launches(subject, finding, rows["op"], inside_calls=True)
    yield replace(counted, takes="argument")


FP32: Final = r"^fmha_cutlass[FB]_f32_"
"""PyTorch's fused attention for float32. FlashAttention and cuDNN only take 16 bits."""

FP32_PCT: Final = 5.0
"""Less of the kernel time is not worth a line."""

CHANGE_OF_PROMOTED: Final = (
    "cast q and k back to 16 bits: q, k = q.to(v.dtype), k.to(v.dtype)",
    "look for what makes them float32: a rotary embedding, a scale or a norm in float32",
    "do not cast v to the type of q: attention runs in float32 then",
)

CHANGE_OF_FP32: Final = (
    "16 bits for attention: torch.autocast('cuda', torch.bfloat16) around it, or"
    " q, k, v = (t.to(torch.bfloat16) for t in (q, k, v))",
)


def fp32_attention(subject: JudgedReport) -> Iterator[Finding]:
    """Fused attention that computes in float32. No trace tells how long it takes in 16 bits.

    A language model in bfloat16 whose rotary embedding made q and k float32 took 55.4 ms a step,
    and 27.3 once they were cast back (H200, 2026-11-30).
    """
    rows = kernels_to_drop(subject, matching(subject.kernels["name"], FP32), FP32_PCT)
    if rows.is_empty():
        return
    promoted = _is_promoted(subject)
    beside = ["most matrix products run in 16 bits, so q, k or v was promoted to float32"]
    yield kernel_finding(
        subject,
        rows,
        rule="fp32-attention",
        title=f"attention computes in float32: {percent(share_of_kernels(subject, rows))} of kernel"
        " time",
        change=CHANGE_OF_PROMOTED if promoted else CHANGE_OF_FP32,
        evidence=(in_words(subject, rows), *(beside if promoted else ())),
    )


def _is_promoted(subject: JudgedReport) -> bool:
    """Whether most matrix products of a report run in 16 bits."""
    products = subject.kernels.filter(pl.col("class") == "matmul")
    unit = unit_by_name(pl.col("name").cast(pl.String))
    in_16_bits = products.filter(unit.is_in(["bf16", "fp16"]))
    return 2 * int(in_16_bits["ns"].sum()) > int(products["ns"].sum())


def _is_math(rows: pl.DataFrame) -> bool:
    """Whether most softmaxes are of PyTorch's own attention.

    Args:
        rows: what fused attention replaces.
    """
    backward = pl.col("name").cast(pl.String).str.contains(_BACKWARD)
    softmaxes = len(rows.filter(pl.col("softmax") & ~backward))
    return bool(0 < softmaxes < 2 * int(matching(rows["name"], SAFE).sum()))


def _averages(subject: JudgedReport, between: pl.DataFrame) -> pl.DataFrame | None:
    """The kernels that average the weights of nn.MultiheadAttention over its heads, with `gain_ns`;
    None where most softmaxes are not of that.

    Args:
        subject: the report.
        between: the kernels between the matmuls of attention.
    """
    softmaxes = between.filter(
        pl.col("softmax") & ~pl.col("name").cast(pl.String).str.contains(_BACKWARD)
    )
    stacks = stacks_with(subject, RETURNS_WEIGHTS).implode()

    def inside(kernels: pl.DataFrame) -> pl.Series:
        calls = subject.view.events.ops["call"][kernels["op"]]
        return stacks_at(subject, calls).is_in(stacks).fill_null(value=False)

    if 2 * int(inside(softmaxes).sum()) <= len(softmaxes):
        return None
    sums = subject.kernels.filter(pl.col("class") == "reduction")
    return sums.filter(inside(sums)).with_columns(pl.col("ns").alias("gain_ns"))


def _adds_scores(rows: pl.DataFrame) -> bool:
    """Whether a matrix times a vector comes before most softmaxes, and takes little time.

    Args:
        rows: what fused attention replaces.
    """
    between = (pl.col("job") == "attention").fill_null(value=False)
    runs = rows["run"].filter(rows.select(between).to_series()).n_unique()
    vectors = pl.col("name").cast(pl.String).str.contains(VECTOR) & ~between
    before = rows.filter(vectors, between.shift(-1).fill_null(value=False))
    matmul_ns = rows.filter(pl.col("class") == "matmul")["ns"].sum()
    return 2 * len(before) > runs and bool(rows.filter(between)["ns"].sum() > OF_SUMS * matmul_ns)


def replaced_by_fused(kernels: pl.DataFrame) -> pl.Series:
    """Whether fused attention replaces each kernel: those between two matmuls with a softmax, the
    matmul before and the one behind, and in the backward pass, where a product has two gradients,
    another one on each side with what stands between the two.

    Args:
        kernels: as of `kernels_in_order`.
    """
    backwards = (kernels["softmax"] & matching(kernels["name"], _BACKWARD)).arg_true()
    runs = run_of(kernels, pl.col("job") == "attention")
    has_backward = backwards.search_sorted(runs["last"], side="right") > backwards.search_sorted(
        runs["first"]
    )
    edges = runs.with_columns(
        has_backward.alias("backward"),
        (pl.col("first") - 1).alias("before"),
        (pl.col("last") + 1).alias("behind"),
    )
    pairs = _matmuls(kernels)
    edges = edges.join(
        pairs.select(before="row", earlier="earlier"),
        on="before",
        how="left",
        maintain_order="left",
    ).join(
        pairs.select(behind="row", later="later"), on="behind", how="left", maintain_order="left"
    )
    outer = edges.select(
        first=pl.when("backward").then("earlier").otherwise("before"),
        last=pl.when("backward").then("later").otherwise("behind"),
    )
    return covered(kernels, outer)


def _matmuls(kernels: pl.DataFrame) -> pl.DataFrame:
    """`row`, `earlier`, `later`: each matmul, and its neighbours on the same stream. Only glue may
    stand between two neighbours. A matmul without a neighbour has its own row there."""
    rows = kernels.with_row_index("row")
    matmul = (pl.col("class") == "matmul").fill_null(value=False)
    other = (~matmul & ~is_glue().fill_null(value=False)).cum_sum()
    found = rows.select("row", "lane", other.alias("others"), matmul.alias("matmul"))
    found = found.filter("matmul")
    near = pl.col("row") - pl.col("row").shift(1) <= MOST_GLUE + 1
    same = (pl.col("lane") == pl.col("lane").shift(1)) & (
        pl.col("others") == pl.col("others").shift(1)
    )
    joined = (near & same).fill_null(value=False)
    return found.with_columns(joined.alias("joined")).select(
        "row",
        earlier=pl.when("joined").then(pl.col("row").shift(1)).otherwise("row"),
        later=pl.when(pl.col("joined").shift(-1, fill_value=False))
        .then(pl.col("row").shift(-1))
        .otherwise("row"),
    )


_TRIANGLE: Final = r"\btriu_tril_kernel\b"
_FILL: Final = r"\bFillFunctor\b"
_FLASH: Final = r"(?i)flash"
_OF_BACKWARD: Final = r"(?i)bprop|bwd|backward|cutlassB_|compute_dot_do_o|convert_dq|reduce_head"

OFTEN: Final = 2
"""So many masks a step: one for all layers is what the advice asks for."""

IN_EACH: Final = 0.5
"""Fewer of the attentions have a mask of their own where one is made for all layers, in each of
several forward passes a step."""

CHANGE_OF_MASKS: Final = (
    "if it is only causal: scaled_dot_product_attention(..., is_causal=True), and no attn_mask",
    "padding at the end needs no mask either, if the loss ignores it",
    "else make the mask once, before the layers, and give it to all of them",
    "another pattern: torch.nn.attention.flex_attention, compiled, with a block mask",
)


def causal_mask(subject: JudgedReport) -> Iterator[Finding]:
    """Triangular masks (triu, tril) that are made right before fused attention, layer by layer.

    Without them, the kernels from the triangle to the attention are not needed (some may be of
    something else), and attention computes half of the scores. That it reads no mask may save more:
    the half is no proven limit. A kernel that is no flash attention may make place for one; how
    much faster that is no trace tells, so that it takes no time then.
    Ten layers took 28.0 ms a step with such masks and 24.0 with is_causal=True (H200, 2026-11-28).
    """
    names = subject.kernels["name"].unique().cast(pl.String)
    if not names.str.contains(_TRIANGLE).any():
        return
    rows = _masked(subject.kernels)
    made = rows.filter("made")
    masks = subject.per_step(int(made["triangle"].sum()))
    if masks < OFTEN:
        return
    attention = rows.filter(~pl.col("made"))
    saved = duration(subject.worst_ns(attention, "gain_ns"))
    yield kernel_finding(
        subject,
        rows,
        rule="causal-mask",
        title=f"a triangular mask is made for attention {masks:,} times{subject.a_step}",
        change=CHANGE_OF_MASKS,
        evidence=(
            f"from triu or tril to the attention behind it: {in_words(subject, made)}; triu and"
            f" tril alone {duration(subject.worst_ns(made.filter('triangle'), 'ns'))}",
            f"attention with such masks: {in_words(subject, attention)}",
            f"the saving has {saved} of attention: half of it, as a causal one computes half of the"
            " scores; that it reads no mask is not counted"
            if _is_flash(attention)
            else f"the saving has {saved} of attention: all of it, as how much faster flash"
            " attention is no trace tells",
        ),
    )


def _is_flash(attention: pl.DataFrame) -> bool:
    """Whether these kernels, or those that they belong to, are of flash attention."""
    return bool(attention["name"].cast(pl.String).str.contains(_FLASH).any())


def _masked(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels that make masks (`made`; `triangle` is triu or tril), and the attention that
    takes them, with `gain_ns`. Backward kernels gain as the forward ones do in the mean.

    Args:
        kernels: as of `kernels_in_order`.
    """
    name, attention = pl.col("name").cast(pl.String), pl.col("class") == "attention"
    flags = (
        kernels[["name"]]
        .unique()
        .with_columns(
            name.str.contains(_TRIANGLE).alias("triangle"),
            name.str.contains(_FILL).alias("fills"),
            name.str.contains(_OF_BACKWARD).alias("backward"),
        )
    )
    rows = kernels.join(flags, on="name", how="left", maintain_order="left")
    rows = rows.with_columns(attention.fill_null(value=False).alias("attention"))
    forward = pl.col("attention") & ~pl.col("backward")
    # a part ends with the first kernel that is no glue: all of it is made, if that is attention
    part = (~is_glue().fill_null(value=False)).shift(1, fill_value=False).cum_sum()
    rows = rows.with_columns(pl.struct("lane", part).rle_id().alias("part"))
    behind = pl.col("triangle").cum_max().over("part")
    fills = pl.col("fills") & pl.col("triangle").shift(-1, fill_value=False)
    takes = forward.last() & pl.col("triangle").any() & (pl.len() <= MOST_GLUE + 1)
    rows = rows.with_columns(takes.over("part").alias("takes"), (behind | fills).alias("behind"))
    made = pl.col("takes") & pl.col("behind") & ~pl.col("attention")
    taken = pl.col("takes") & forward
    share = pl.col("ns").filter(taken).sum() / pl.col("ns").filter(forward).sum()
    most = pl.col("ns") // 2 if _is_flash(rows.filter(taken)) else pl.col("ns")
    gain = (
        pl.when(made)
        .then(pl.col("ns"))
        .when(taken)
        .then(most)
        .when(pl.col("attention") & pl.col("backward"))
        .then((most * share).fill_nan(0).round())
    )
    rows = rows.with_columns(made.alias("made"), gain.cast(pl.Int64).alias("gain_ns"))
    in_each = taken.sum() >= IN_EACH * forward.sum()
    return rows.filter(pl.col("gain_ns") > 0, in_each)


CHOOSES: Final = r"\bgatherTopK\b"
"""PyTorch's top-k, by which a search chooses its beams."""

GATHERS: Final = (
    r"\bvectorized_gather_kernel\b|\bindexSelect(?:Large|Small)Index\b|\bindex_kernel_impl\b"
    r"|\b_scatter_gather_elementwise_kernel\b"
)
"""PyTorch's kernels of index_select, gather and x[index]."""

FEWEST_GATHERS: Final = 8
"""Keys and values of four layers. Neighbours of a point, or tokens of an expert, are gathered once
or a few times behind a top-k, and a product follows."""

CACHES_PCT: Final = 15.0
"""The caches of a short text take less, and are reordered for good reason."""

CHANGE_OF_CACHES: Final = (
    "reorder only what differs between beams: keys and values of cross-attention are the same for"
    " all beams of a request",
    "keep the ancestor of each beam at each position, and gather in attention, or once at the end",
)
"""A translator of twelve layers took 10.3 ms a token, and 5.9 once it reordered the keys and values
of self-attention alone (H200, 2026-12-01)."""


def cache_reordered(subject: JudgedReport) -> Iterator[Finding]:
    """Gathers of many tensors behind a top-k, with no product between: all layers' caches are put
    into the order of the new beams. What has to be gathered no trace tells."""
    if subject.mostly_captures or not matching(subject.kernels["name"], CHOOSES).any():
        return
    rows = _behind_top_k(subject.kernels).with_columns(pl.col("ns").alias("gain_ns"))
    if share_of_kernels(subject, rows) < CACHES_PCT or trains(subject):
        return
    runs = rows["part"].n_unique()
    yield kernel_finding(
        subject,
        rows,
        rule="cache-reordered",
        title="beam search gathers its caches at each token:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_CACHES,
        evidence=(
            in_words(subject, rows),
            f"{round(len(rows) / runs):,} tensors are gathered behind each top-k",
        ),
    )


def _behind_top_k(kernels: pl.DataFrame) -> pl.DataFrame:
    """The gathers behind a top-k and before the next product or attention on the stream, where they
    are `FEWEST_GATHERS` or more; `part` numbers these."""
    matrix = pl.col("class").is_in(MATRIX_CLASSES).fill_null(value=False)
    marked = kernels.with_columns(
        matching(kernels["name"], CHOOSES).alias("chooses"),
        matching(kernels["name"], GATHERS).alias("gathers"),
        pl.struct("lane", matrix.cum_sum()).rle_id().alias("part"),
    )
    chosen = pl.col("chooses").cum_max().over("part")
    behind = marked.filter(chosen & pl.col("gathers"))
    return behind.filter(pl.len().over("part") >= FEWEST_GATHERS).drop("chooses", "gathers")
