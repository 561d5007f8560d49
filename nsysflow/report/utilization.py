"""Model FLOPs utilization: a line for the step, a block for the phases."""

import polars as pl

from nsysflow.report.layout import Block, Column, figure, words
from nsysflow.report.results import Results, gpu_name
from nsysflow.report.sections import more
from nsysflow.report.units import duration, flops, percent


def mfu_lines(results: Results) -> tuple[str, ...]:
    """`MFU 31 % (bf16 dense peak 989 TFLOP/s): 308 TFLOP/s a step`, a line per rank; none where no
    FLOPs are declared."""
    several = len(results.reports) > 1
    steps = _of_steps(results)
    if steps.is_empty() and any(each.options.flops_per_step for each in results.analyses):
        return (_why_none(results),)
    many = steps.height > 1
    lines = []
    for row in steps.iter_rows(named=True):
        who = f"{gpu_name(row['report'], row['device'], several=several)}: " if many else ""
        done = f"{_rate(row['flops_per_s'])} a step"
        mfu = row["mfu_pct"]
        if mfu is None:
            peak = f"no {row['unit']} peak is known of {row['name'] or 'this GPU'}"
            lines.append(f"{who}{done} ({row['unit']}; {peak})")
        else:
            peak = f"{row['unit']} dense peak {_rate(row['peak_flops_per_s'])}"
            lines.append(f"{who}MFU {percent(mfu)} ({peak}): {done}")
    return tuple(lines)


def _why_none(results: Results) -> str:
    """Why FLOPs were said of steps, and there is no step to divide them by."""
    if results.step_name is None:
        return (
            "no step was found, so there is no MFU: name the range that is one (--step NAME), or"
            " put the loop into nsysflow.steps"
        )
    if results.table("steps").is_empty():
        return "no step starts in the part looked at, so there is no MFU"
    return (
        "several ranges are steps, so there is no MFU: name one by its whole path"
        f" (--step {results.step_name.split(', ')[0]})"
    )


def rates(results: Results, limit: int) -> Block:
    """Steps and phases with their rate; nothing where only the step's is known."""
    table = results.table("mfu")
    several = table.select("report", "device").n_unique() > 1
    many = len(results.reports) > 1
    phased = table.height > _of_steps(results).height
    rows = tuple(
        (
            *((gpu_name(row["report"], row["device"], several=many),) if several else ()),
            row["path"],
            duration(row["time_ns"]),
            flops(row["flops"]),
            _rate(row["flops_per_s"]),
            percent(row["mfu_pct"]),
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    return Block(
        title="Rates",
        caption="A step's FLOPs, as declared, over its time on the GPU",
        columns=(
            *((Column(head="GPU"),) if several else ()),
            words("phase"),
            *map(figure, ("time", "FLOPs", "rate", "MFU")),
        ),
        rows=rows if phased else (),
        more=more(table.height - limit, "mfu") if phased else (),
    )


def _of_steps(results: Results) -> pl.DataFrame:
    """The rows of `mfu` that are of steps, with the GPU's `name`."""
    names = results.table("accounting").select("report", "device", "name")
    first = pl.col("path") == pl.col("path").first().over("report", "process", "device")
    return results.table("mfu").filter(first).join(names, on=["report", "device"], how="left")


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else f"{flops(per_s)}/s"
