"""Model FLOPs utilization (MFU) of steps and phases (spec §8).

The operations that a step needs by formula, divided by its time and the GPU's peak in that
arithmetic.
"""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns, percent, whole_ns
from nsysflow.analysis.options import Options
from nsysflow.analysis.schema import FLOPS, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.steps import step_table
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import FlopsError
from nsysflow.base.peaks import PEAKS, Unit

MFU: Final = TableSchema(
    """One row per process and device for a step, and for each phase in it with declared FLOPs.
    `flops` are of one step. `time_ns` is the median step's (of the steady ones if there are any),
    or a phase's median span times how often it runs in a step; `steps` is the number of steps used.
    `peak_flops_per_s` is the GPU's in that arithmetic, null where it is not known.""",
    [
        *shared("report process device"),
        Column("path", pl.String(), "the step, or a phase in it with declared FLOPs"),
        Column("unit", pl.String(), "the arithmetic: float32, tf32, bf16, fp16 or fp8"),
        Column("flops", pl.Int64(), "the FLOPs of one step, as declared"),
        Column("steps", pl.Int64(), "how many steps were used"),
        Column("time_ns", pl.Int64(), "the median step, or the phase's time in a step"),
        Column("flops_per_s", pl.Float64(), "what was reached"),
        Column(
            "peak_flops_per_s",
            pl.Float64(),
            "what the GPU can do in that arithmetic without sparsity; empty where it is not known",
        ),
        Column("mfu_pct", pl.Float64(), "what was reached, of the peak"),
    ],
)

DEFAULT_UNIT: Unit = "bf16"
"""The arithmetic of most training. The page names the peak."""

WHOLE_STEP = ""
"""The phase under which `--flops-per-step` is declared."""


def declared_flops(declared: pl.DataFrame, processes: pl.Series, options: Options) -> pl.DataFrame:
    """The FLOPs of a step as `schema.FLOPS`: from the options, else as the programs declare them.

    Args:
        declared: `schema.FLOPS` of the report.
        processes: those with steps.
        options: `flops_per_step` holds for each process, `flops_dtype` for declared FLOPs too.
    """
    if options.flops_per_step is not None:
        return pl.DataFrame(
            {
                "process": processes,
                "phase": WHOLE_STEP,
                "flops": round(options.flops_per_step),
                "unit": options.flops_dtype or DEFAULT_UNIT,
            },
            schema=FLOPS,
        )
    unit = pl.col("unit") if options.flops_dtype is None else pl.lit(options.flops_dtype)
    return declared.with_columns(unit.alias("unit"))


def mfu_table(view: View) -> pl.DataFrame:
    """The MFU table: each step's range before its phases.

    Raises:
        FlopsError: more FLOPs are declared than the GPU can do.
    """
    pid = os_pid(pl.col("process")).alias("process")
    processes = view.timeline.steps["process"].unique()
    flops = declared_flops(view.trace.flops, processes, view.options)
    if flops.is_empty():
        return MFU.to_frame()
    steps = step_table(view)
    phases = view.work_of_steps.with_columns(pid, pl.col("joined").alias("path"))
    step_paths = view.timeline.step_paths.with_columns(pid)
    return rates(flops.with_columns(pid), step_paths, steps, phases, view.trace)


def rates(
    flops: pl.DataFrame,
    step_paths: pl.DataFrame,
    steps: pl.DataFrame,
    phases: pl.DataFrame,
    trace: Trace,
) -> pl.DataFrame:
    """The rows of MFU.

    Args:
        flops: of `declared_flops`, its `process` the OS pid.
        step_paths: `process` (OS pid), `path` and `joined`: which range is a step. Automatic steps
            have no path, and no phases in it.
        steps: STEPS.
        phases: `process` (OS pid), `path`, `instances` and `median_ns` of their spans, in whole
            steps.
        trace: for the devices, and for the report's name in messages.

    Raises:
        FlopsError: more FLOPs are declared than the GPU can do.
    """
    step_path = pl.col("joined").alias("step_path")
    paths = step_paths.select("process", "path", step_path).unique("process", keep="none")
    declared = flops.join(paths.drop("path"), on="process")
    inside = declared.join(paths.drop_nulls("path"), on="process", how="semi")
    timed = pl.concat([_of_steps(declared, steps), _of_phases(inside, steps, phases)])
    names = trace.devices[["device", "name"]].unique("device", keep="first")
    rate = pl.when(pl.col("time_ns") > 0).then(pl.col("flops") * 1e9 / pl.col("time_ns"))
    table = (
        timed.join(names, on="device", how="left")
        .join(_peaks(), on=["name", "unit"], how="left")
        .with_columns(rate.alias("flops_per_s"))
        .with_columns(
            percent(pl.col("flops_per_s"), pl.col("peak_flops_per_s")).alias("mfu_pct"),
        )
        .sort("process", "device", pl.col("path") != pl.col("step_path"), "path")
    )
    for row in table.filter(pl.col("mfu_pct") > 100).iter_rows(named=True):
        raise _too_much(row, trace.report)
    return table


def _peaks() -> pl.DataFrame:
    """`name`, `unit`, `peak_flops_per_s` of each GPU that is known."""
    return pl.DataFrame(
        [(gpu, unit, peak) for gpu, units in PEAKS.items() for unit, peak in units.items()],
        schema={"name": pl.String(), "unit": pl.String(), "peak_flops_per_s": pl.Float64()},
        orient="row",
    )


def _of_steps(declared: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Per process and device a step's FLOPs and median time, of steady steps if there are any."""
    key = ["process", "device"]
    some_steady = pl.col("steady").any().over(key)
    times = (
        steps.filter(pl.col("steady") | ~some_steady)
        .group_by(key)
        .agg(
            pl.len().cast(pl.Int64).alias("steps"),
            median_ns(pl.col("duration_ns")).alias("time_ns"),
        )
    )
    return (
        declared.group_by("process", "step_path", "unit")
        .agg(pl.col("flops").sum())
        .join(times, on="process")
        .select(*key, "step_path", "unit", pl.col("step_path").alias("path"), *_MEASURED)
    )


_MEASURED = ("flops", "steps", "time_ns")


def _of_phases(declared: pl.DataFrame, steps: pl.DataFrame, phases: pl.DataFrame) -> pl.DataFrame:
    """The same for each phase with declared FLOPs, including nested phases.

    Only for processes with one GPU, since the span of a phase covers all GPUs.
    """
    alone = steps[["process", "device"]].unique().unique("process", keep="none")
    instances = pl.col("instances")
    of_step = phases.select(
        "process", pl.col("path").alias("step_path"), instances.alias("steps")
    ).filter(pl.col("steps") > 0)
    under = phases.join(declared[["process", "step_path"]].unique(), on="process").filter(
        pl.col("path").str.starts_with(pl.col("step_path") + "/")
    )
    # FLOPs declared for a name that stands in several places cannot be assigned
    named = (
        under[["process", "path"]]
        .join(declared, on="process")
        .filter(pl.col("path").str.ends_with("/" + pl.col("phase")), pl.col("phase") != WHOLE_STEP)
        .unique(["process", "phase"], keep="none")
        .select("process", "unit", "flops", pl.col("path").alias("declared_path"))
    )
    inside = (pl.col("declared_path") == pl.col("path")) | pl.col("declared_path").str.starts_with(
        pl.col("path") + "/"
    )
    per_step_ns = pl.col("median_ns") * instances / pl.col("steps")
    return (
        under.join(named, on="process")
        .filter(inside)
        .group_by("process", "path", "unit", "step_path", "instances", "median_ns")
        .agg(pl.col("flops").sum())
        .join(of_step, on=["process", "step_path"])
        .join(alone, on="process")
        .with_columns(whole_ns(per_step_ns).alias("time_ns"))
        .drop_nulls("time_ns")
        .select("process", "device", "step_path", "unit", "path", *_MEASURED)
    )


def _too_much(row: Mapping[str, Any], report: str) -> FlopsError:
    unit, gpu = row["unit"], row["name"]
    return FlopsError(
        f"{report}: {row['path']} would run at {row['mfu_pct']:.0f} % of the dense {unit} peak of"
        f" an {gpu} ({row['flops']:.4g} FLOPs in {row['time_ns'] / 1e6:.4g} ms are"
        f" {row['flops_per_s'] / 1e12:.4g} TFLOP/s, the peak is"
        f" {row['peak_flops_per_s'] / 1e12:.4g})",
        "The FLOPs are too many (they are of one step of one rank: --flops-per-step F), or another"
        " range is the step (--step NAME), or the work is in a faster arithmetic"
        " (--flops-dtype tf32)",
    )


TABLES: Final = (
    Table(
        name="mfu",
        schema=MFU,
        make=mfu_table,
        csv="with rows",
        json_key="mfu",
        full_rows=30,
        filled_by="give --flops-per-step",
        shown="path mfu_pct time_ns device report flops_per_s flops unit steps",
    ),
)
