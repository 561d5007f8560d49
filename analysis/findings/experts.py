"""Experts that run one at a time: a loop that picks the rows of one group, multiplies them, and
puts them back."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, covered
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.selection.view import View

LISTS: Final = r"\bDeviceSelectSweepKernel\b"
"""nonzero lists where a tensor is true, as `torch.where(mask)` and `x[mask]` do."""

PICKS: Final = r"\b(?:vectorized_gather_kernel|indexSelect\w+Index|index_kernel_impl)\b"
"""PyTorch's kernels that pick rows of a tensor."""

PUTS: Final = r"\b(?:indexFunc\w+Index|index_put_kernel_impl|indexing_backward_kernel\w*)\b"
"""Those that put rows into a tensor, or add them to it."""

LONGEST: Final = 60
"""A pass launches no more kernels: 17, and 32 for its gradient, where an expert has three products
(moe_finetune, 2026-11-29)."""

AHEAD: Final = 4
"""So many kernels before the list may belong to its pass: a comparison, sums, and a start."""

IN_A_ROW: Final = 0.7
"""So many passes come right behind another one: three of four experts."""

FEWEST: Final = 8
"""Fewer passes a step are not worth another form of the program: two layers of four experts."""

SAME_PASSES: Final = 0.1
"""Loop and backward pass may differ by this share of their passes: an expert may have no row."""

NEVER: Final = 1 << 62
"""The row of what does not come."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Loops over experts.

    Attributes:
        kernels: what they launch, rows of the judged kernels.
        backward: what their backward passes launch, likewise.
        passes: how many there are.
        waits: the calls at which the host waits in them.
    """

    kernels: pl.DataFrame
    backward: pl.DataFrame
    passes: int
    waits: pl.Series


def experts_of(view: View, kernels: pl.DataFrame, steps: int) -> Experts:
    """The loops over experts of the judged part; without kernels where there are none.

    A pass lists rows, picks them, multiplies them, and puts them back. Its gradient needs no list,
    and is else the same. Five layers of eight such experts took 40.1 ms a step, and 12.3 with all
    experts at once (H200, 2026-11-29).

    Args:
        view: the judged part.
        kernels: as of `kernels_in_order`.
        steps: how many steps are judged.
    """
    begins = _rows(matching(kernels["name"], LISTS))
    passes = _passes(kernels, begins, AHEAD)
    if len(passes) < FEWEST * steps:
        passes = passes.clear()
    own = covered(kernels, passes)
    picks = matching(kernels["name"], PICKS) & is_backward(view, kernels) & ~own
    gradients = _passes(kernels, _rows(picks), 0)
    if abs(len(gradients) - len(passes)) > SAME_PASSES * len(passes):
        gradients = gradients.clear()
    return Experts(
        kernels=kernels.filter(own),
        backward=kernels.filter(covered(kernels, gradients) & ~own),
        passes=len(passes),
        waits=_waits(view, kernels.filter(own)),
    )


def _passes(kernels: pl.DataFrame, begins: pl.Series, ahead: int) -> pl.DataFrame:
    """`first` and `last` row of each pass that begins at one of these rows, with up to so many
    kernels `ahead` of it; none where fewer than `IN_A_ROW` come right behind another one."""
    product = (kernels["class"] == "matmul").fill_null(value=False)
    work = kernels["class"].is_in([*MATRIX_CLASSES, "comm"]).fill_null(value=False)
    picks, puts = (_rows(matching(kernels["name"], names)) for names in (PICKS, PUTS))
    found = begins.alias("begin").to_frame()
    found = found.with_columns(_next(_rows(product), begins).alias("product"))
    # `out[rows] = y` lists rows, too, but then the next list comes before a product
    found = found.filter(pl.col("begin").shift(-1, fill_value=NEVER) > pl.col("product"))
    begin = found["begin"]
    found = found.with_columns(
        _next(picks, begin).alias("pick"),
        _next(puts, found["product"]).alias("last"),
        _next(_rows(work & ~product), begin).alias("other"),
        _last(_rows(work), begin).alias("worked"),
    )
    until = pl.min_horizontal(pl.col("begin") + LONGEST, "other")
    found = found.filter(pl.col("pick") < pl.col("product"), pl.col("last") < until)
    lane, end = kernels["lane"][found["begin"]], kernels["lane"][found["last"]]
    found = found.with_columns(lane).filter(lane == end)
    before = pl.col("last").shift(1, fill_value=-1)
    near = (pl.col("lane") == pl.col("lane").shift(1)) & (pl.col("begin") - before <= LONGEST)
    follows = (near & (pl.col("worked") <= before)).fill_null(value=False)
    if int(found.select(follows).to_series().sum()) < IN_A_ROW * len(found):
        found = found.clear()
    first = pl.max_horizontal(pl.col("begin") - ahead, pl.col("worked") + 1, before + 1)
    return found.select(first.alias("first"), "last")


def _rows(flags: pl.Series) -> pl.Series:
    """The rows whose flag is set."""
    return flags.arg_true().cast(pl.Int64)


def _next(rows: pl.Series, at: pl.Series) -> pl.Series:
    """Per row `at` the first of these rows that is not before it; `NEVER` where none is."""
    return rows.extend_constant(NEVER, 1)[rows.search_sorted(at)]


def _last(rows: pl.Series, at: pl.Series) -> pl.Series:
    """Per row `at` the last of these rows before it; -1 where none is."""
    return pl.concat([pl.Series([-1], dtype=pl.Int64), rows.rename("")])[rows.search_sorted(at)]


def _waits(view: View, kernels: pl.DataFrame) -> pl.Series:
    """The calls that wait right behind the launch of one of these kernels, or of a copy behind it:
    their threads launch no other kernel before."""
    calls, ops = view.events.calls, view.events.ops
    waits = calls.filter(pl.col("class").is_in(["sync", "blocking_copy"]))
    launched = ops.filter(pl.col("kind") == "kernel").drop_nulls("call")
    last = waits.select("call", "thread_no", "start_ns").sort("start_ns")
    last = last.join_asof(
        launched.select("op", "thread_no", start_ns="launch_start_ns").sort("start_ns"),
        on="start_ns",
        by="thread_no",
        check_sortedness=False,
    )
    return last.filter(pl.col("op").is_in(kernels["op"].implode()))["call"]
