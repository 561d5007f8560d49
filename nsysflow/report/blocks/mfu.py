"""Model FLOPs utilization: a sentence on the step, a block for its phases."""

import polars as pl

from nsysflow.base.units import duration, flops, percent
from nsysflow.report.fields import Limits, gpu_fields, make_block, more_rows, named_rows, value
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import RunTables, gpu_name


def block(results: RunTables, limits: Limits) -> Block:
    """Steps and phases with their rate; no rows where only the step's is known."""
    table = results.table("mfu")
    shown = table if table.height > _of_steps(results).height else table.clear()
    return make_block(
        "MFU",
        named_rows(shown, limits),
        (
            *gpu_fields(results, shown),
            (words("phase"), value("path")),
            (figure("time"), value("time_ns", duration)),
            (figure("FLOPs"), value("flops", flops)),
            (figure("rate"), value("flops_per_s", _rate)),
            (figure("MFU"), value("mfu_pct", percent)),
        ),
        caption="The FLOPs given for a step, divided by its time on the GPU",
        rest=more_rows(shown.height - limits.rows, "mfu"),
    )


def mfu_sentences(results: RunTables) -> tuple[str, ...]:
    """`MFU 31 %: 308 TFLOP/s of 989 TFLOP/s (bf16 dense peak)`, one per rank; none where no FLOPs
    are given."""
    several = len(results.reports) > 1
    steps = _of_steps(results)
    if steps.is_empty() and any(each.options.flops_per_step for each in results.report_tables):
        return (_why_none(results),)
    sentences = []
    for row in steps.iter_rows(named=True):
        gpu = gpu_name(row["report"], row["device"], several=several)
        rate, unit = _rate(row["flops_per_s"]), row["unit"]
        if row["mfu_pct"] is None:
            name = row["name"] or "this GPU"
            said = f"{rate} ({unit}); the {unit} peak of {name} is not known"
        else:
            peak = f"{_rate(row['peak_flops_per_s'])} ({unit} dense peak)"
            said = f"MFU {percent(row['mfu_pct'])}: {rate} of {peak}"
        sentences.append(f"{gpu}: {said}" if steps.height > 1 else said)
    return tuple(sentences)


def _why_none(results: RunTables) -> str:
    """Why there is no MFU although FLOPs per step were given."""
    if results.step_name is None:
        return (
            "no MFU: no step was found; name the range that is one step with --step NAME, or put"
            " the loop into nsysflow.steps"
        )
    if results.table("steps").is_empty():
        return "no MFU: no step starts in the selected part"
    return (
        "no MFU: several ranges are steps; name one by its whole path, e.g."
        f" --step {results.step_name.split(', ')[0]}"
    )


def _of_steps(results: RunTables) -> pl.DataFrame:
    """The rows of `mfu` that are of steps, with the GPU's `name`."""
    names = results.table("accounting")[["report", "device", "name"]]
    first = pl.col("path") == pl.col("path").first().over("report", "process", "device")
    return results.table("mfu").filter(first).join(names, on=["report", "device"], how="left")


def _rate(per_s: float) -> str:
    return f"{flops(per_s)}/s"
