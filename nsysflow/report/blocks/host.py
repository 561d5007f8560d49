"""What keeps the host from launching: the code that it runs, the thread that holds Python's lock,
CPUs that others use, and batches that come late."""

from typing import Final

import polars as pl

from nsysflow.analysis.findings.host_functions import code, functions
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.units import cpus, duration, number, percent, share
from nsysflow.report.fields import (
    BlockDeclaration,
    Fields,
    Limits,
    Row,
    Rows,
    gpus_together,
    measure,
    measure_per_step,
    phase_field,
)
from nsysflow.report.layout import figure, words
from nsysflow.report.results import RunTables

WORTH_OF_HOST_CODE: Final = 0.3
"""A row has at least its part of this share of the window: a short list names only code that
matters, a long one more."""


def _host_code(results: RunTables, limits: Limits) -> Rows:
    """The code with the most idle time."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    ran = functions(results.table("host_stacks"), "phase")
    worth = ran.filter(pl.col("idle_ns") >= WORTH_OF_HOST_CODE / limits.rows * window_ns)
    return Rows(worth, len(ran))


def _share_of_host_code(results: RunTables, _: pl.DataFrame) -> Fields:
    whole_ns = int(results.table("host_stacks")["idle_ns"].sum())
    return ((figure("share"), lambda row: share(row["idle_ns"], whole_ns)),)


def _what_ran(results: RunTables) -> str:
    """With the part of the time for which that is not known, if there is any."""
    table = results.table("host_stacks")
    rows = table.filter(pl.col("function") == NOT_SAMPLED)
    unknown = ""
    if ns := int(rows["idle_ns"].sum()):
        operators = rows["samples"].null_count() == len(rows)  # torch.profiler records no samples
        why = "outside operators" if operators else "not sampled"
        unknown = f"; {share(ns, int(table['idle_ns'].sum()))} {why}"
    return f"What ran while the GPU waited{unknown}{results.per_step}{gpus_together(results)}"


WORTH_OF_ESTIMATE_PCT: Final = 15.0
"""An estimate of waits for the lock is as much of host code and launches, divided by the number of
rows: a short page has 5 %, as it may be wrong by some per cent."""


def _lock_waits(results: RunTables, limits: Limits) -> Rows:
    """All rows, but for an estimate of next to nothing."""
    table = results.table("gil")
    whole_pct, least_pct = table["share_pct"].sum(), WORTH_OF_ESTIMATE_PCT / limits.rows
    worth = table if whole_pct >= least_pct or not table["estimated"].any() else table.clear()
    return Rows(worth, len(worth))


def _share_of_lock(results: RunTables) -> str:
    """With the share of all idle time in which the host was due."""
    table = results.table("gil")
    estimated, whole_pct = bool(table["estimated"].any()), float(table["share_pct"].sum())
    waits = "seems to wait" if estimated else "waits"
    how = "; estimated, profile --gil measures it" if estimated else ""
    return (
        f"The launching thread {waits} for Python's lock in {percent(whole_pct)} of the idle time"
        f" of host code and launches{results.per_step}{gpus_together(results)}{how}"
    )


def _holder(row: Row) -> str:
    """`feeder 4250`: names of threads are often alike."""
    return f"{row['holder_name'] or ''} {row['holder']}".lstrip()


def _held_in(row: Row) -> str:
    """`decode (feed.py:88)`."""
    return "" if row["function"] is None else code({**row, "via": None})


HOST_CODE: Final = (
    BlockDeclaration(
        table="host_stacks",
        title="Host code",
        caption=_what_ran,
        rows=_host_code,
        fields=(
            measure_per_step("idle", "idle_ns"),
            _share_of_host_code,
            (words("the host ran"), code),
            phase_field(),
        ),
    ),
    BlockDeclaration(
        table="gil",
        title="Python's lock (GIL)",
        caption=_share_of_lock,
        rows=_lock_waits,
        fields=(
            measure_per_step("waits", "gil_ns"),
            measure("share", "share_pct", percent),
            (words("held by thread"), _holder),
            (words("which ran"), _held_in),
            phase_field(),
        ),
        hides_empty=True,
    ),
)


WAIT_WORTH_PCT: Final = 1
"""A page shows the waits if a thread waited for so much of the time, or a limit held it up."""


def _cpu_waits(results: RunTables, _: Limits) -> Rows:
    """The threads that waited, those first that waited longest."""
    waited = pl.col("waited_pct") >= WAIT_WORTH_PCT
    throttled = (pl.col("throttled_ns") > 0).fill_null(value=False)
    rows = results.table("cpu").filter(waited | throttled)
    return Rows(rows.sort("waited_ns", descending=True, maintain_order=True), len(rows))


def _longest_wait(results: RunTables) -> str:
    """`The launching thread waited 412 ms (9 %) for a CPU; of 4 CPUs its process used 3.9`."""
    rows = _cpu_waits(results, Limits(rows=1)).frame
    if rows.is_empty():
        return ""
    most = rows.row(0, named=True)
    parts = [
        f"The launching thread waited {duration(most['waited_ns'])}"
        f" ({percent(most['waited_pct'])}) for a CPU"
    ]
    if most["used_cores"] is not None:
        parts.append(f"of {cpus(most['cores'])} its process used {most['used_cores']:.1f}")
    if most["throttled_ns"]:
        limit = f"{most['limit_cores']:g}"
        parts.append(f"held up for {_throttled(most)} by a limit of {limit} CPUs")
    return "; ".join(parts)


def _throttled(row: Row) -> str:
    return duration(row["throttled_ns"] or None)


def _used(cores: float) -> str:
    return f"{cores:.1f}"


CPU: Final = BlockDeclaration(
    table="cpu",
    title="Waits for a CPU",
    caption=_longest_wait,
    rows=_cpu_waits,
    fields=(
        (words("process"), lambda row: str(row["process"])),
        measure("waited", "waited_ns", duration),
        measure("of time", "waited_pct", percent),
        measure("GPU idle", "descheduled_ns", duration),
        measure("CPUs", "cores", number),
        measure("used", "used_cores", _used),
        (figure("by its processes"), lambda row: _used(row["started_cores"] or 0)),
        measure("by others", "others_cores", _used),
        measure("limit", "limit_cores", _used),
        (figure("held up"), _throttled),
    ),
    hides_empty=True,
)


LOADERS_WORTH_PCT: Final = 2
"""A page shows the loaders for which a loop waits for so much of its time."""


def _loaders(results: RunTables, _: Limits) -> Rows:
    """Each loader for which its loop waits."""
    waited = 100 * pl.col("waited_ns") >= LOADERS_WORTH_PCT * pl.col("span_ns")
    rows = (
        results.table("loader_workers")
        .filter(pl.col("worker").is_null() & waited)
        .with_columns((100 * pl.col("waited_ns") / pl.col("span_ns")).alias("waited_pct"))
        .sort("waited_ns", descending=True)
    )
    return Rows(rows, len(rows))


def _loader(row: Row) -> str:
    """`3 workers (fork)`."""
    workers, starts = row["workers"], row["start_method"]
    if not workers:
        return "in the loop's own process"
    return f"{workers} worker{'s' * (workers > 1)}" + (f" ({starts})" if starts else "")


def _rate(per_s: float) -> str:
    return f"{per_s:,.1f} /s"


LOADERS: Final = BlockDeclaration(
    table="loader_workers",
    title="Data loaders",
    caption="Busy: of the time of all workers; waited: the loop for its batches, of its time",
    rows=_loaders,
    fields=(
        (words("loader"), _loader),
        measure("busy", "busy_pct", percent),
        measure("batch median", "fetch_median_ns", duration),
        measure("95 %", "fetch_p95_ns", duration),
        measure("batches", "batches_per_s", _rate),
        measure("waited", "waited_pct", percent),
        (words("pinned"), lambda row: "yes" if row["pin_memory"] else "no"),
        (figure("cores"), lambda row: "" if row["cores"] is None else f"{row['cores']}"),
        (figure("pid"), lambda row: f"{row['process']}"),
    ),
    hides_empty=True,
)
