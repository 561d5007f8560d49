"""What a backward pass launches, and the activations that it takes back from the host."""

from typing import Final

import polars as pl

from nsysflow.analysis.selection.view import View

BACKWARD: Final = r"(?i)(?:^|/)[^/]*backward"
"""Ranges of the backward pass."""


def is_backward(view: View, ops: pl.DataFrame) -> pl.Series:
    """Whether each operation was launched in a range of the backward pass, or by autograd's thread.

    Args:
        view: the judged part.
        ops: its operations, with `node` and `thread_no`.
    """
    attribution, threads = view.attribution, view.events.threads
    in_range = attribution.paths["joined"].str.contains(BACKWARD)[attribution.path_of(ops["node"])]
    by_thread = threads["autograd"][ops["thread_no"]]
    either = pl.lit(in_range).fill_null(value=False) | pl.lit(by_thread).fill_null(value=False)
    return pl.select(either.alias("backward")).to_series()


FEWEST: Final = 4
"""With fewer copies a step, their sizes may match by chance."""

RETURNED: Final = 0.9
"""So much of what a backward pass takes from the host went there before. Parameters that are kept
on the host come without having gone."""

SWAPPED: Final = 0.5
"""If this share of it also comes to the GPU outside of backward passes, these are parameters. Those
of a layer come for its forward pass, go, and come again."""

OFFLOADED_PCT: Final = 5.0
"""Copies that take a smaller share of the steps hardly matter."""


def offloaded(view: View) -> pl.DataFrame:
    """The copies of activations that the host keeps for the backward pass, rows of `view.copies`:
    they go to the host outside of a backward pass, and as many bytes come in a backward pass later
    in the same step. None of GPUs where that is little.

    With `torch.autograd.graph.save_on_cpu` around an encoder, 56 tensors of 355 MB went and came in
    each step: 54.9 ms, and 33.9 without it (H200, 2026-11-29).
    """
    track = ["process", "device_no"]
    alike = [*track, "step", "bytes"]
    up, backward = pl.col("direction") == "HtoD", pl.col("backward")
    out, back = ~up & ~backward, up & backward
    went, came = out.cum_sum().over(alike), back.cum_sum().over(alike)
    copies = _copies_of_steps(view).with_columns(
        went.alias("went"), (back & (came <= went)).alias("returned")
    )
    returned = pl.col("returned")
    gone = out & (pl.col("went") <= returned.sum().over(alike))
    swapped = up & ~backward & returned.any().over(alike)
    copies = copies.with_columns((returned | gone).alias("kept"), swapped.alias("swapped"))
    length_ns, moved = pl.col("end_ns") - pl.col("start_ns"), pl.col("bytes")
    steps = view.steps.group_by(track).agg(length_ns.sum().alias("steps_ns"), steps=pl.len())
    tracks = copies.group_by(track).agg(
        returned.sum().alias("count"),
        moved.filter(returned).sum().alias("returned_bytes"),
        moved.filter(back).sum().alias("back_bytes"),
        moved.filter("swapped").sum().alias("swapped_bytes"),
        length_ns.filter("kept").sum().alias("kept_ns"),
    )
    chosen = tracks.join(steps, on=track).filter(
        pl.col("count") >= FEWEST * pl.col("steps"),
        pl.col("returned_bytes") >= RETURNED * pl.col("back_bytes"),
        pl.col("swapped_bytes") < SWAPPED * pl.col("returned_bytes"),
        100 * pl.col("kept_ns") >= OFFLOADED_PCT * pl.col("steps_ns"),
    )
    kept = copies.filter("kept").join(chosen, on=track, how="semi")
    return view.copies.filter(pl.col("op").is_in(kept["op"].implode()))


def _copies_of_steps(view: View) -> pl.DataFrame:
    """The copies between GPUs and the host in the judged steps, in order: with `step`, and whether
    a backward pass launched each as `backward`; none where no steps are judged."""
    track = ["process", "device_no"]
    steps = view.steps if view.of_steps else view.steps.clear()
    steps = steps.select(*track, "step", "start_ns", step_end_ns="end_ns").sort("start_ns")
    copies = view.copies.filter(pl.col("direction").is_in(["HtoD", "DtoH"])).sort("start_ns", "op")
    copies = copies.with_columns(is_backward(view, copies))
    placed = copies.join_asof(steps, on="start_ns", by=track, check_sortedness=False)
    return placed.filter(pl.col("start_ns") < pl.col("step_end_ns"))


def blocking(view: View, copies: pl.DataFrame) -> pl.Series:
    """The calls that may block the host for offloaded activations: those that copy, and waits for
    the GPU before their thread launches anything else.

    Args:
        view: the judged part.
        copies: of `offloaded`. The host may be ahead: of copies that run after what is judged,
            those of the same sizes count, too.
    """
    if copies.is_empty():
        return copies["call"]
    alike = ["process", "device_no", "direction", "bytes"]
    others = view.timeline.copies.join(view.copies, on="op", how="anti")
    others = others.join(copies, on=alike, how="semi")
    copies = pl.concat([rows.select("op", "call") for rows in (copies, others)])
    calls, ops = view.events.calls, view.events.ops
    waits = calls.filter(pl.col("class") == "sync").select("call", "thread_no", "start_ns")
    launched = ops.drop_nulls("call").select("op", "thread_no", start_ns="launch_start_ns")
    last = waits.sort("start_ns").join_asof(
        launched.sort("start_ns"), on="start_ns", by="thread_no", check_sortedness=False
    )
    behind = last.filter(pl.col("op").is_in(copies["op"].implode()))
    return pl.concat([copies["call"].drop_nulls(), behind["call"]])
