"""What only summary.md shows: steps, kernels, starved windows, copies."""

import polars as pl

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.tables.kernels.classes import OTHER
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.report.sections import more, part
from nsysflow.report.units import duration, instant, number, percent, size, whole_percent


def steps_line(results: Results) -> str:
    """`5 steps of step, median 61.4 ms (2 to 4 steady: 60.9 ms, 12 % idle; unprofiled 50.0 ms: the
    profiler adds 22 %)`, for each range that is one; empty without steps."""
    steps = results.table("steps").join(
        results.step_names, on=["report", "process"], how="left", maintain_order="left"
    )
    return "; ".join(
        _line(results, name, some) for (name,), some in steps.group_by("name", maintain_order=True)
    )


def _line(results: Results, name: object, steps: pl.DataFrame) -> str:
    per_step = _count(steps)
    count = f"{number(per_step)} step{'s' if per_step != 1 else ''}{f' of {name}' if name else ''}"
    steady = steps.filter("steady")
    more = []
    if 0 < steady.height < steps.height:
        idle = whole_percent(int(steady["idle_ns"].sum()), int(steady["duration_ns"].sum()))
        more.append(f"{_which(steps, steady)} steady: {duration(_median_ns(steady))}, {idle} idle")
    more += _unprofiled(results, steps if steady.is_empty() else steady)
    line = f"{count}, median {duration(_median_ns(steps))}"
    return f"{line} ({'; '.join(more)})" if more else line


def _which(steps: pl.DataFrame, steady: pl.DataFrame) -> str:
    """The steady steps: `2 to 4`, or how many where others lie between them."""
    which = steady["step"].unique().sort()
    first, last = which[0], which[-1]
    if last - first + 1 > len(which):
        return f"{number(len(which))} of {number(_count(steps))}"
    return f"{first} to {last}" if last > first else f"step {first}"


def _unprofiled(results: Results, steps: pl.DataFrame) -> list[str]:
    """What a step takes without the profiler, and what the profiler adds to it, where that is
    known: of the processes that measured it."""
    of = ["report", "process"]
    measured = results.captures.drop_nulls("unprofiled_step_ns").join(steps, on=of, how="semi")
    profiled = steps.join(measured, on=of, how="semi")
    if profiled.is_empty():
        return []
    unprofiled_ns = int(measured.select(pl.col("unprofiled_step_ns").median().round()).item())
    text = f"unprofiled {duration(unprofiled_ns)}"
    added_ns = _median_ns(profiled) - unprofiled_ns
    if added_ns <= 0 or not unprofiled_ns:
        return [text]
    return [f"{text}: the profiler adds {whole_percent(added_ns, unprofiled_ns)}"]


def _count(steps: pl.DataFrame) -> int:
    """How many steps a process took; ranks take theirs together."""
    each = steps.group_by("report", "process").agg(pl.col("step").n_unique())
    return greatest(each["step"])


def _median_ns(steps: pl.DataFrame) -> int:
    return int(steps.select(pl.col("duration_ns").median().round()).item())


def steps(results: Results, limit: int) -> Block:
    """The first steps one by one."""
    table = results.table("steps")
    several = table.select("report", "device").n_unique() > 1
    rows = tuple(
        (
            *((row["report"], str(row["device"])) if several else ()),
            str(row["step"]),
            duration(row["duration_ns"]),
            *(
                part(row[column], row["duration_ns"])
                for column in ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
            ),
            "yes" if row["steady"] else "",
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    return Block(
        title="Steps",
        caption=steps_line(results),
        columns=(
            *((words("report"), figure("GPU")) if several else ()),
            *map(figure, ("step", "time", "compute", "communication", "copy", "idle")),
            words("steady"),
        ),
        rows=rows,
        more=more(table.height - limit, "steps"),
    )


def kernels(results: Results, limit: int) -> Block:
    """The kernels with the most time."""
    table = results.table("kernels").sort("total_ns", descending=True, maintain_order=True)
    rows = tuple(
        (
            duration(row["total_ns"]),
            percent(row["share_pct"]),
            number(row["count"]),
            duration(row["median_ns"]),
            row["class"],
            f"{row['grid'] or ''} x {row['block'] or ''}",
            row["short_name"],
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    other_ns, all_ns = table.select(
        pl.col("total_ns").filter(pl.col("class") == OTHER).sum().alias("other"),
        pl.col("total_ns").sum(),
    ).row(0)
    unfiled = percent(100 * other_ns / all_ns if all_ns else None)
    return Block(
        title="Kernels",
        caption=f"Share of all kernel time on its GPU; {unfiled} of it is in no class",
        columns=(
            *map(figure, ("total", "share", "count", "median")),
            words("class"),
            words("grid x block"),
            words("kernel"),
        ),
        rows=rows,
        more=more(table.height - limit, "kernels"),
    )


def starved(results: Results, limit: int) -> Block:
    """Where the GPU waited for launches, and what a CUDA graph would make of it."""
    table = results.table("starved")
    rows = tuple(
        (
            duration(row["launch_idle_ns"]),
            duration(row["end_ns"] - row["start_ns"]),
            duration(row["graph_estimate_ns"]),
            number(row["ops"]),
            duration(row["median_kernel_ns"]),
            duration(row["median_interval_ns"]),
            row["phase"] or OUTSIDE,
            instant(row["start_ns"]),
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    return Block(
        title="Starved windows",
        caption="Short operations launched one by one, and what a CUDA graph of them would take",
        columns=(
            *map(figure, ("launch idle", "time", "as a graph", "ops", "median kernel")),
            figure("median interval"),
            words("phase"),
            figure("at"),
        ),
        rows=rows,
        more=more(table.height - limit, "starved"),
    )


def copies(results: Results, limit: int) -> Block:
    """Copies by kind and phase, those that cost most first."""
    table = results.table("copies").sort(
        "induced_idle_ns", "exposed_ns", "bytes", descending=True, maintain_order=True
    )
    rows = tuple(
        (
            duration(row["induced_idle_ns"]),
            duration(row["exposed_ns"]),
            duration(row["gpu_ns"]),
            size(row["bytes"]),
            number(row["count"]),
            row["direction"] or "",
            row["copy_label"] or "",
            row["phase"] or OUTSIDE,
        )
        for row in table.head(limit).iter_rows(named=True)
    )
    return Block(
        title="Copies",
        caption="Exposed: on the GPU with no compute at the same time",
        columns=(
            *map(figure, ("idle it cost", "exposed", "GPU", "bytes", "count")),
            words("direction"),
            words("kind"),
            words("phase"),
        ),
        rows=rows,
        more=more(table.height - limit, "copies"),
    )
