"""The blocks that are data: title, columns with their formats, order, and what is said of them."""

from collections.abc import Callable
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.kernel_classes import OTHER
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, flops, instant, number, percent, share, signed, size
from nsysflow.report.blocks.clocks import CLOCKS
from nsysflow.report.blocks.code import CODE
from nsysflow.report.blocks.host import CPU, HOST_CODE, LOADERS
from nsysflow.report.blocks.memory import MEMORY
from nsysflow.report.fields import (
    BlockDeclaration,
    Fields,
    Limits,
    Row,
    Rows,
    cause_field,
    count_per_step,
    gpu_field,
    gpu_fields,
    line_field,
    measure,
    measure_per_step,
    phase_field,
    text,
    time_and_share,
    where_known,
)
from nsysflow.report.layout import Column, bar, figure, words
from nsysflow.report.ranks import group_names, rank_namer
from nsysflow.report.results import RunTables, sorted_by_rank
from nsysflow.report.step_times import steps_sentence

FEW_SMS: Final = "few SMs active"
"""The GPU is busy all the time, and most SMs have nothing to do: too few or too small blocks."""

FEW_SMS_PCT: Final = 30
"""Fewer active SMs than this are few (spec §10)."""

_PARTS_OF_STEP: Final = {
    "step": "step",
    "compute": "compute",
    "comm_exposed": "exposed communication",
    "copy_exposed": "exposed copies",
    "idle": "idle",
    **{name: f"idle: {cause.label}" for name, cause in CAUSES.items()},
}
"""What each part of a step is called."""

_CLASSES: Final = 4
"""So many kernel classes fit on a line beside their bar, the last of which is all others."""

_BAR: Final = 20


def _of_all_kernels(results: RunTables) -> tuple[str, ...]:
    """`by class: ██████▓▓▓▒▒░ matmul 61 %, elementwise 20 %, …`; nothing without kernel time."""
    sums = results.table("kernels").group_by("class").agg(pl.col("total_ns").sum())
    ranked = sums.filter(pl.col("total_ns") > 0).sort("total_ns", "class", descending=[True, False])
    if ranked.is_empty():
        return ()
    total = int(ranked["total_ns"].sum())
    named = ranked.filter(pl.col("class") != OTHER).head(_CLASSES - 1).rows()
    rest = total - sum(ns for _, ns in named)
    parts = [*named, *([(OTHER, rest)] if rest else [])]
    drawn = bar([ns for _, ns in parts], _BAR)
    listed = ", ".join(f"{name} {share(ns, total)}" for name, ns in parts)
    return (f"by class: {drawn} {listed}",)


def starved_line(results: RunTables) -> tuple[str, ...]:
    """How long the starved windows are, and would be as CUDA graphs; nothing where there are
    none."""
    windows = results.table("starved").select(
        pl.len(),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"),
        pl.col("graph_estimate_ns").sum(),
    )
    count, ns, graph_ns = windows.row(0)
    if not count:
        return ()
    plural = "s" if count > 1 else ""
    return (
        f"{number(count)} window{plural} starved of launches: {duration(ns)}, about"
        f" {duration(graph_ns)} as CUDA graph{plural}: --table starved",
    )


def _idle_time(results: RunTables, _: Limits) -> Rows:
    table = sorted_by_rank(results.table("gap_summary"), "gap_summary")
    return Rows(table, len(table))


def _longest_gaps(results: RunTables, limits: Limits) -> Rows:
    longest = results.longest_gaps(limits.rows, limits.at_least_ns)
    return Rows(longest, results.count_gaps(limits.at_least_ns))


def _gpu_of_gap(results: RunTables, _: pl.DataFrame) -> Fields:
    return (gpu_field(results),) if results.table("accounting").height > 1 else ()


def _waiting_phase(row: Row) -> str:
    """The phase that had to wait, unless the host was in it."""
    waiting = row["waiting_phase"]
    return "" if waiting == row["phase"] else waiting or OUTSIDE


def _few_sms_first(results: RunTables, _: Limits) -> Rows:
    """Phases and kernel classes with few SMs active, then the others, by time."""
    table = results.table("gpu_metrics").filter(pl.col("samples") > 0)
    ranked = table.with_columns(few_sms().fill_null(value=False).alias("few_sms")).sort(
        "few_sms", "busy_ns", descending=True, maintain_order=True
    )
    return Rows(ranked, len(ranked))


def few_sms() -> pl.Expr:
    """Whether few SMs are active although a kernel runs. Between operations the GPU idles, so few
    active SMs say nothing where overhead is the bound."""
    few = pl.col("sm_active_pct") < FEW_SMS_PCT
    return few & (pl.col("bound").cast(pl.String) != "overhead").fill_null(value=True)


def _memory(row: Row) -> str:
    """Reads and writes share the memory's bandwidth."""
    columns = ("dram_read_pct", "dram_write_pct")
    known = [row[column] for column in columns if row[column] is not None]
    return percent(sum(known)) if known else ""


_ALIKE: Final = ["kind", "operation", "size_bytes"]


def _slow_and_typical_links(results: RunTables, _: Limits) -> Rows:
    """Slow links, then the group in the middle of those alike; those that move most come first.
    Kernels of one rank alone say nothing of links: their time is waiting, too."""
    table = results.table("bandwidth").drop_nulls(["bus_bytes_per_s", "group"])
    typical = _middle_of_those_alike(table)
    slow = table.filter(pl.col("slow_ns") > 0).sort("slow_ns", descending=True)
    others = typical.join(slow, on=["group", *_ALIKE], how="anti", nulls_equal=True)
    return Rows(pl.concat([slow, others]), len(table))


def _middle_of_those_alike(table: pl.DataFrame) -> pl.DataFrame:
    """Of each kind, operation and size the group with the middle time, most time first."""
    place = pl.int_range(pl.len()).over(_ALIKE)
    middle = place == pl.len().over(_ALIKE) // 2
    took_ns = (pl.col("done_ns") * pl.col("count")).sum().over(_ALIKE).alias("took_ns")
    return (
        table.sort("done_ns", "group")
        .with_columns(took_ns)
        .filter(middle)
        .sort("took_ns", descending=True)
        .drop("took_ns")
    )


def _group_of_ranks(results: RunTables, _: pl.DataFrame) -> Fields:
    groups = group_names(results.table("rank_groups"))
    return ((words("group"), lambda row: groups.get(row["group"], "")),)


def _speed(bytes_per_s: float) -> str:
    return f"{size(round(bytes_per_s))}/s"


def _flop_rate(flops_per_s: float) -> str:
    return f"{flops(flops_per_s)}/s"


def _outliers_of_many(results: RunTables, _: Limits) -> Rows:
    table = results.table("rank_outliers")
    return Rows(table, len(table)) if results.whole.many else Rows(table.clear(), 0)


def _rank(results: RunTables, _: pl.DataFrame) -> Fields:
    name = rank_namer(results)
    return ((Column(head="rank"), lambda row: name(row["report"], row["device"])),)


def _part_of_step(column: str) -> Callable[[Row], str]:
    """A part of a step and its share."""
    return lambda row: time_and_share(row[column], row["duration_ns"])


def _kinds_of_steps(results: RunTables, _: Limits) -> Rows:
    """Each kind of step; all together only where there are several."""
    table = results.table("serving")
    kinds = pl.len().over("report", "process", "device")
    rows = table.filter((pl.col("kind").cast(pl.String) != "all") | (kinds != 2))
    return Rows(rows, len(rows))


def _mean(value: float) -> str:
    return number(round(value)) if value >= 10 else f"{value:.3g}"


def _growth(ns_per_token: float) -> str:
    """For 1,000 tokens."""
    return signed(round(1_000 * ns_per_token))


_BLOCKS: Final = (
    BlockDeclaration(
        table="serving",
        title="Serving",
        caption="By kind of step, medians; GPU waits: for the scheduler, the sampler and launches",
        rows=_kinds_of_steps,
        fields=(
            gpu_fields,
            text("kind"),
            measure("steps", "steps"),
            measure("requests", "requests_per_step", _mean, spare=True),
            measure("tokens/s", "tokens_per_s", _mean),
            measure("step", "median_ns", duration),
            measure("95 % within", "p95_ns", duration, spare=True),
            measure("between tokens", "between_tokens_ns", duration),
            measure("95 % within", "between_tokens_p95_ns", duration),
            measure("first token", "first_token_ns", duration),
            measure("at most", "first_token_max_ns", duration),
            measure("GPU waits", "host_wait_pct", percent),
            measure("padding", "padding_pct", percent),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="serving_work",
        title="Attention and matmul",
        caption="Medians; grows: for 1,000 more tokens (attention: of context);"
        " known: with known work",
        fields=(
            gpu_fields,
            text("kind"),
            text("kernels", "class"),
            measure("share", "share_pct", percent),
            measure("a step", "median_ns", duration),
            measure("grows", "ns_per_token", _growth),
            measure("known", "known_pct", percent),
            measure("FLOP/s", "flops_per_s", _flop_rate),
            measure("bytes/s", "bytes_per_s", _speed),
            text("limit"),
            measure("of roofline", "roofline_pct", percent),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="kernels",
        title="Kernels",
        caption="Share of all kernel time on its GPU",
        per_step=True,
        sort=("total_ns",),
        fields=(
            gpu_fields,
            measure("share", "share_pct", percent),
            measure_per_step("time", "total_ns"),
            count_per_step("count", "count"),
            measure("median", "median_ns", duration),
            text("class"),
            text("kernel", "short_name"),
            text("functor"),
        ),
        more=_of_all_kernels,
        hides_empty=True,
    ),
    CODE,
    BlockDeclaration(
        table="operators",
        title="Operators",
        caption="Of the roofline: what peak or bandwidth allow, over the kernels' time",
        per_step=True,
        fields=(
            gpu_fields,
            measure("share", "share_pct", percent),
            measure_per_step("time", "total_ns"),
            count_per_step("calls", "calls"),
            measure("of roofline", "roofline_pct", percent),
            text("limit", fixed=True),
            measure("FLOP/s", "flops_per_s", _flop_rate),
            (words("operator"), lambda row: row["operator"].removeprefix("aten::")),
            text("shapes"),
            text("dtype", spare=True),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="gap_summary",
        title="Idle time",
        caption="By cause, and by the phase in which the host was meanwhile",
        rows=_idle_time,
        fields=(
            measure("idle", "total_ns", duration),
            measure("share", "window_pct", percent),
            measure("per step", "per_step_ns", duration),
            measure("gaps", "gaps"),
            gpu_fields,
            cause_field(),
            phase_field(),
            text("culprit"),
            line_field(),
        ),
        more=starved_line,
        hides_empty=True,
    ),
    *HOST_CODE,
    BlockDeclaration(
        table="gaps",
        title="Longest gaps",
        rows=_longest_gaps,
        fields=(
            measure("idle", "duration_ns", duration),
            measure("at", "start_ns", instant),
            _gpu_of_gap,
            cause_field(),
            phase_field(),
            text("culprit"),
            line_field(),
            text("before", "prev_op", spare=True),
            text("after", "next_op", spare=True),
            (words("waiting phase", spare=True), _waiting_phase),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="steps",
        title="Steps",
        caption=lambda tables: steps_sentence(tables.whole),
        fields=(
            gpu_fields,
            measure("step", "step", str),
            measure("time", "duration_ns", duration),
            (figure("compute"), _part_of_step("compute_ns")),
            (figure("communication"), _part_of_step("comm_exposed_ns")),
            (figure("copy"), _part_of_step("copy_exposed_ns")),
            (figure("idle"), _part_of_step("idle_ns")),
            (words("steady"), lambda row: "yes" if row["steady"] else ""),
        ),
    ),
    BlockDeclaration(
        table="starved",
        title="Starved windows",
        caption="Short operations launched one by one; as a graph: an estimate for a CUDA graph",
        fields=(
            measure("launch idle", "launch_idle_ns", duration),
            (figure("time"), lambda row: duration(row["end_ns"] - row["start_ns"])),
            measure("as a graph", "graph_estimate_ns", duration),
            measure("ops", "ops"),
            measure("median kernel", "median_kernel_ns", duration),
            measure("median interval", "median_interval_ns", duration),
            phase_field(),
            measure("at", "start_ns", instant),
        ),
    ),
    BlockDeclaration(
        table="copies",
        title="Copies",
        caption="Exposed: on the GPU without compute at the same time",
        sort=("induced_idle_ns", "exposed_ns", "bytes"),
        fields=(
            measure("idle behind it", "induced_idle_ns", duration),
            measure("exposed", "exposed_ns", duration),
            measure("GPU time", "gpu_ns", duration),
            measure("bytes", "bytes", size),
            measure("count", "count"),
            text("direction"),
            text("kind", "copy_label"),
            phase_field(),
        ),
    ),
    BlockDeclaration(
        table="comm",
        title="Communication",
        caption="Exposed: without compute at the same time; waiting for ranks too",
        per_step=True,
        sort=("exposed_ns", "busy_ns"),
        fields=(
            gpu_fields,
            measure_per_step("exposed", "exposed_ns"),
            measure("overlapped", "hidden_pct", percent),
            measure_per_step("busy", "busy_ns"),
            count_per_step("count", "count"),
            where_known("bytes", measure_per_step("bytes", "bytes", size)),
            phase_field(),
            text("operation"),
            text("kernel", "name", spare=True),
        ),
    ),
    BlockDeclaration(
        table="rank_outliers",
        title="Outliers",
        caption="Ranks that are far from the others",
        per_step=True,
        rows=_outliers_of_many,
        fields=(
            _rank,
            (words("part"), lambda row: _PARTS_OF_STEP[row["part"]]),
            measure("time", "ns", duration),
            measure("median rank", "median_ns", duration),
            (figure("differs by"), lambda row: signed(row["ns"] - row["median_ns"])),
        ),
    ),
    BlockDeclaration(
        table="bandwidth",
        title="Bandwidth",
        caption="From the last rank's arrival to the end; of similar groups, the middle one",
        rows=_slow_and_typical_links,
        fields=(
            _group_of_ranks,
            text("operation"),
            measure("bytes", "bytes", size),
            measure("count", "count"),
            measure("transfer", "done_ns", duration),
            measure("algorithm", "algorithm_bytes_per_s", _speed),
            measure("bus", "bus_bytes_per_s", _speed),
            measure("of peak", "peak_pct", percent),
            measure("overlapped", "overlapped_pct", percent, spare=True),
            measure("slow link costs", "slow_ns", duration),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="gpu_metrics",
        title="GPU counters while busy",
        caption="Sampled, in percent of the hardware's maximum",
        rows=_few_sms_first,
        fields=(
            gpu_fields,
            text("of", "group", fixed=True),
            text("name"),
            measure("busy", "busy_ns", duration),
            measure("SMs active", "sm_active_pct", percent),
            measure("issue", "sm_issue_pct", percent),
            measure("tensor", "tensor_active_pct", percent),
            (figure("memory"), _memory),
            text("bound", fixed=True),
            (Column(head="note"), lambda row: FEW_SMS if row["few_sms"] else ""),
        ),
        hides_empty=True,
    ),
    CLOCKS,
    CPU,
    LOADERS,
    *MEMORY,
    BlockDeclaration(
        table="integrity",
        title="Data quality",
        fields=(
            text("check"),
            measure("count", "count"),
            measure("share", "share_pct", percent),
            text("affects", "impact"),
        ),
        hides_empty=True,
    ),
)

DECLARED: Final = {declared.table: declared for declared in _BLOCKS}
"""Each of them by its table, in the order of the index of tables."""
