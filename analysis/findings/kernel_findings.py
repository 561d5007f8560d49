"""Findings about kernels that could be faster: what they have in common."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.events.operators import shapes_in_words
from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernels import largest_operators
from nsysflow.analysis.findings.launching_lines import launching_lines
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import duration, percent

IN_ONE_PHASE: Final = 0.8
"""A phase with less of what can be saved is not the place of a finding."""

LAUNCHES_TOO: Final = (
    "fewer kernels also mean fewer launches: a step that waits for the host saves more than this"
)
"""What a replay with shorter kernels leaves out, where a change replaces many by few."""

TRAINS: Final = r"(?i)backward|weight_norm_bwd"
"""Kernels of a backward pass. A dgrad alone is none: a transposed convolution is one."""

_NAME_LETTERS: Final = 60


def trains(subject: JudgedReport) -> bool:
    """Whether a judged kernel is of a backward pass or an optimizer."""
    optimizer = (pl.col("class") == "optimizer") | (pl.col("job") == "optimizer")
    return bool(
        subject.kernels.select(optimizer.any()).item()
        or matching(subject.kernels["name"], TRAINS).any()
        or is_backward(subject.view, subject.kernels).any()
    )


def kernel_finding(
    subject: JudgedReport,
    rows: pl.DataFrame,
    *,
    rule: str,
    title: str,
    change: tuple[str, ...],
    evidence: tuple[str, ...],
    table: str = "kernels",
    saves_more: bool = False,
    at: pl.DataFrame | None = None,
) -> Finding:
    """The finding that these kernels could be faster by `gain_ns`, as a replay values it.

    Args:
        subject: the judged part.
        rows: rows of `subject.kernels`, with `gain_ns`.
        rule: the rule's name.
        title: its title.
        change: what to do.
        evidence: the numbers behind it; the kernels are added.
        table: the table that holds these numbers.
        saves_more: whether the change makes other kernels faster, too.
        at: those of them that the changed lines launched; all when None.
    """
    lines = launching_lines(subject, rows if at is None else at)
    largest = (_largest(subject, rows), *_operators(subject, rows))
    return Finding(
        rule=rule,
        title=f"{title}, most {lines.place}" if lines.place else title,
        change=change,
        evidence=(*evidence, *largest, *lines.evidence),
        table=table,
        size_ns=subject.worst_ns(rows, "gain_ns"),
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        changes=Changes(scaled=scaled(subject.kernels, rows)),
        exact=False,
        saves_more=saves_more,
        phase=phase_of(subject, rows),
        source=lines.source,
        via=lines.via,
        culprit=str(by_name(rows)["short_name"].cast(pl.String)[0]),
    )


def scaled(kernels: pl.DataFrame, rows: pl.DataFrame) -> tuple[tuple[str, float], ...]:
    """Each name with the factor that takes `gain_ns` off all kernels of that name together; the
    largest gain first."""
    gains = rows.group_by("name").agg(pl.col("gain_ns").sum()).filter(pl.col("gain_ns") > 0)
    alike = kernels.join(gains[["name"]], on="name", how="semi")
    totals = alike.group_by("name").agg(pl.col("ns").sum())
    factor = (1 - pl.col("gain_ns") / pl.col("ns")).clip(0, 1).alias("factor")
    factors = gains.join(totals, on="name").select(
        pl.col("name").cast(pl.String), factor, "gain_ns"
    )
    ranked = factors.sort("gain_ns", "name", descending=[True, False])
    return tuple(ranked[["name", "factor"]].rows())


def share_of_kernels(subject: JudgedReport, rows: pl.DataFrame) -> float:
    """How much of all kernel time these rows take, in percent; 0 without kernel time."""
    whole = int(subject.kernels["ns"].sum())
    return 100 * int(rows["ns"].sum()) / whole if whole else 0.0


def kernels_by_pass(subject: JudgedReport) -> pl.DataFrame:
    """The judged kernels with `step` (null where none are judged), `backward`, whether it is of the
    backward pass (null where no launch tells), `key`, a number for name and grid, and all of their
    time as `gain_ns`."""
    return kept_with(subject, "kernels by pass", lambda: _by_pass(subject))


def _by_pass(subject: JudgedReport) -> pl.DataFrame:
    kernels = subject.kernels
    grids = subject.grids.select(pl.all().gather(kernels["detail"]))
    named = grids.with_columns(kernels["name"].to_physical())
    launched = pl.col("thread_no").is_not_null()
    return kernels.with_columns(
        _steps(subject),
        pl.when(launched).then(is_backward(subject.view, kernels)).alias("backward"),
        named.select(pl.struct(pl.all()).rank("dense")).to_series().alias("key"),
        pl.col("ns").alias("gain_ns"),
    )


def _steps(subject: JudgedReport) -> pl.Series:
    """The number of each kernel's step; null where none are judged."""
    track = ["process", "device"]
    steps = subject.judged_steps.select(*track, "start_ns", "step").sort("start_ns")
    rows = subject.kernels.select(*track, "start_ns").with_row_index("row").sort("start_ns")
    placed = rows.join_asof(steps, on="start_ns", by=track, check_sortedness=False)
    return placed.sort("row")["step"]


def in_words(subject: JudgedReport, rows: pl.DataFrame) -> str:
    """`96 kernels a step, 12.3 ms, 38 % of kernel time`."""
    count = subject.worst_ns(rows.with_columns(pl.lit(1).alias("one")), "one")
    time = duration(subject.worst_ns(rows, "ns"))
    a_step = " a step" if subject.of_steps else ""
    share = percent(share_of_kernels(subject, rows))
    return f"{count:,} kernel{'' if count == 1 else 's'}{a_step}, {time}, {share} of kernel time"


def phase_of(subject: JudgedReport, rows: pl.DataFrame) -> str:
    """The phase that has most of the gain; empty where it is spread over several."""
    paths = subject.view.attribution.path_of(rows["node"]).alias("path")
    sums = rows.select(paths, "gain_ns").group_by("path").agg(pl.col("gain_ns").sum())
    most = sums.sort("gain_ns", "path", descending=[True, False]).row(0, named=True)
    if most["path"] is None or most["gain_ns"] < IN_ONE_PHASE * int(sums["gain_ns"].sum()):
        return ""
    return str(subject.view.attribution.paths["joined"][most["path"]])


def by_name(rows: pl.DataFrame) -> pl.DataFrame:
    """The time of these kernels by name, most first: `name`, `short_name`, `ns`."""
    sums = rows.group_by("name", "short_name").agg(pl.col("ns").sum())
    return sums.sort("ns", pl.col("name").cast(pl.String), descending=[True, False])


def _largest(subject: JudgedReport, rows: pl.DataFrame) -> str:
    """The two names with most time."""
    named = by_name(rows).select(pl.col("short_name").cast(pl.String), "ns").head(2).rows()
    parts = [f"{name[:_NAME_LETTERS]} {duration(subject.per_step(ns))}" for name, ns in named]
    return f"most time: {', '.join(parts)}"


def _operators(subject: JudgedReport, rows: pl.DataFrame) -> Iterator[str]:
    """The operators with most time, by shape, where shapes were recorded."""
    parts = [
        f"{name} {shapes_in_words(args)} {duration(subject.per_step(ns))}"
        for name, args, ns in largest_operators(subject.view, rows)
    ]
    if parts:
        yield f"in: {'; '.join(parts)}"
