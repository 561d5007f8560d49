"""Masks that attention would not need.

* `causal-mask`: a triangular mask is made for each layer, where an argument would do.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding
from nsysflow.analysis.findings.kernels import MOST_GLUE, is_glue
from nsysflow.base.units import duration

_TRIANGLE: Final = r"\btriu_tril_kernel\b"
_FILL: Final = r"\bFillFunctor\b"
_FLASH: Final = r"(?i)flash"
_BACKWARD: Final = r"(?i)bprop|bwd|backward|cutlassB_|compute_dot_do_o|convert_dq|reduce_head"

OFTEN: Final = 2
"""So many masks a step: one for all layers is what the advice asks for."""

IN_EACH: Final = 0.5
"""Fewer of the attentions have a mask of their own where one is made for all layers, in each of
several forward passes a step."""

CHANGE: Final = (
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
        change=CHANGE,
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
            name.str.contains(_BACKWARD).alias("backward"),
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
