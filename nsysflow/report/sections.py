"""What the terminal page and summary.md both show, as blocks of cells."""

from typing import Any, Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES, STALLS
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.costs import (
    CAUSE_WORDS,
    Cost,
    costs,
    line_at,
    where_host_was_in_gap,
    without_function,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.results import Results, gpu_name, or_outside
from nsysflow.report.units import duration, instant, number, percent, share

BAR: Final = (
    ("compute_ns", "compute", "█"),
    ("comm_exposed_ns", "comm", "▓"),
    ("copy_exposed_ns", "copy", "▒"),
    ("idle_ns", "idle", "░"),
)
"""The parts of a window in the order of the accounting, told apart without colour too."""


def devices(results: Results, *, bar_width: int) -> Block:
    """Where each GPU's time goes; without bars where `bar_width` is 0."""
    several = len(results.reports) > 1
    rows = []
    for row in results.table("accounting").iter_rows(named=True):
        window_ns = row["window_ns"]
        name = gpu_name(row["report"], row["device"], several=several)
        bar = (_bar([row[column] for column, _, _ in BAR], bar_width),) if bar_width else ()
        parts = [part(row[column], window_ns) for column, _, _ in BAR]
        rows.append((name, duration(window_ns), *bar, *parts))
    heads = [figure(f"{letter} {head}" if bar_width else head) for _, head, letter in BAR]
    bars = (Column(head="", spare=True),) if bar_width else ()
    return Block(
        title="Where the GPU's time goes",
        caption="Of communication and copies, what no compute hides",
        columns=(Column(head="GPU"), figure("window"), *bars, *heads),
        rows=tuple(rows),
        more=idle_by_cause(results),
    )


def starving(results: Results) -> tuple[str, ...]:
    """What CUDA graphs would make of the starved windows, as a line if there are any."""
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
        f"{number(count)} window{plural} starved of launches: {duration(ns)},"
        f" as CUDA graph{plural} about {duration(graph_ns)}: --table starved",
    )


def part(ns: int, whole_ns: int) -> str:
    """`105 ms 34.2 %`: a time and its share."""
    return f"{duration(ns)} {share(ns, whole_ns)}" if ns else "0"


def idle_by_cause(results: Results) -> tuple[str, ...]:
    """`idle by cause: host 105 ms 34.2 %, launch …`, dearest first, as a line if there is any."""
    accounting = results.table("accounting")
    window_ns = int(accounting["window_ns"].sum())
    sums = {cause: int(accounting[f"{cause}_ns"].sum()) for cause in CAUSES}
    ranked = sorted((item for item in sums.items() if item[1]), key=lambda item: -item[1])
    parts = [f"{cause} {part(ns, window_ns)}" for cause, ns in ranked]
    return (f"idle by cause: {', '.join(parts)}",) if parts else ()


def dearest(results: Results, limit: int) -> Block:
    """What costs most."""
    found = costs(results)
    rows = tuple(
        (
            duration(cost.total_ns),
            percent(cost.window_pct),
            duration(cost.per_step_ns),
            number(cost.times),
            CAUSE_WORDS[cost.cause],
            cost.where,
            cost.culprit,
            _line(cost),
            _waited(cost),
        )
        for cost in found[:limit]
    )
    block = Block(
        title="What costs most",
        caption=f"Idle time by cause and by where the host was meanwhile{_together(results)}",
        columns=(
            *map(figure, ("idle", "share", "per step", "times")),
            Column(head="cause"),
            words("where the host was"),
            words("culprit"),
            Column(head="line"),
            words("what waited", spare=True),
        ),
        rows=rows,
        more=(*more(len(found) - limit, "gap_summary"), *starving(results)),
    )
    return without_empty_columns(block)


def _together(results: Results) -> str:
    """What a sum over several GPUs says of itself."""
    count = results.table("accounting").height
    return f"; the {number(count)} GPUs together" if count > 1 else ""


def _line(cost: Cost) -> str:
    """The line that most of it happened at, and how many others there are."""
    line = line_at(cost.cause, cost.culprit, cost.line)
    if not cost.line or not cost.more_lines:
        return line
    plural = "s" if cost.more_lines > 1 else ""
    return f"{without_function(line)} +{cost.more_lines} more line{plural}"


def _waited(cost: Cost) -> str:
    """What waited, where that is not where the host was."""
    if cost.cause in STALLS:
        return ""
    phase = cost.phase or OUTSIDE
    return "" if phase == cost.where else phase


def phases(results: Results, limit: int, *, indent: str = "  ") -> Block:
    """The phase tree; where nothing of a GPU was recorded, the host's time alone."""
    if results.table("accounting").is_empty():
        return _host_times(results, limit, indent)
    found, left_out = phase_tree(results, limit)
    window_ns = int(results.table("accounting")["window_ns"].sum())
    top_ns = next((phase.siblings_ns for phase in found if len(phase.names) == 1), 0)
    return Block(
        title="Phases",
        caption=(
            "GPU time: at work for a phase, or idle while the host was in it; top level:"
            f" {duration(top_ns)} of {duration(window_ns)}"
        ),
        columns=(
            words("phase"),
            figure("times"),
            figure("host", spare=True),
            *map(figure, ("GPU time", "share", "nested", "busy", "idle")),
            *(figure(head, spare=True) for head in ("kernel", "kernels", "launches")),
        ),
        rows=tuple(_phase_row(phase, indent) for phase in found),
        more=more(left_out, "phases"),
    )


def _host_times(results: Results, limit: int, indent: str) -> Block:
    found, left_out = phase_tree(results, limit)
    return Block(
        title="Ranges",
        caption="Time the host spent in each; nothing of a GPU was recorded",
        columns=(words("range"), *map(figure, ("times", "host", "mean"))),
        rows=tuple(
            (
                indent * (len(phase.names) - 1) + phase.names[-1],
                number(phase.instances),
                duration(phase.host_wall_ns),
                duration(phase.host_mean_ns),
            )
            for phase in found
        ),
        more=more(left_out, "phases"),
    )


def _phase_row(phase: Phase, indent: str) -> tuple[str, ...]:
    return (
        indent * (len(phase.names) - 1) + phase.names[-1],
        number(phase.instances),
        duration(phase.host_wall_ns),
        duration(phase.time_ns),
        share(phase.time_ns, phase.siblings_ns),
        duration(phase.children_ns),
        duration(phase.busy_ns),
        duration(phase.idle_ns),
        duration(phase.kernel_ns),
        number(phase.kernels),
        number(phase.launches),
    )


def stalls(results: Results, limit: int) -> Block:
    """Waits of the host by call and phase: what they cost, and the longest that cost nothing."""
    place = or_outside("phase")
    grouped = (
        results.table("syncs")
        .group_by(pl.col("api").cast(pl.String), place, pl.col("source").fill_null(""))
        .agg(pl.len().alias("calls"), pl.col("induced_idle_ns", "blocked_ns", "gpu_busy_ns").sum())
        .sort(
            *("induced_idle_ns", "blocked_ns", "api", "phase", "source"),
            descending=[True, True, False, False, False],
        )
    )
    shown = grouped.head(limit)
    longest = grouped.sort("blocked_ns", descending=True, maintain_order=True).head(1)
    if limit and not longest.is_empty() and longest.row(0) not in shown.rows():
        shown = pl.concat([shown.head(limit - 1), longest])
    block = Block(
        title="Waits",
        caption=(
            f"A wait costs the idle it leaves behind, not the time it lasts{_together(results)}"
        ),
        columns=(
            *map(figure, ("idle it cost", "blocked", "GPU busy", "calls")),
            words("call"),
            Column(head="line"),
            words("phase"),
        ),
        rows=tuple(
            (
                duration(row["induced_idle_ns"]),
                duration(row["blocked_ns"]),
                duration(row["gpu_busy_ns"]),
                number(row["calls"]),
                row["api"],
                row["source"],
                row["phase"],
            )
            for row in shown.iter_rows(named=True)
        ),
        more=more(len(grouped) - len(shown), "syncs"),
    )
    return without_empty_columns(block)


def longest_gaps(results: Results, limit: int, *, at_least_ns: int = 0) -> Block:
    """The longest gaps."""
    top = results.longest_gaps(limit, at_least_ns).with_columns(where_host_was_in_gap())
    several = results.table("accounting").height > 1
    many = len(results.reports) > 1
    block = Block(
        title="Longest gaps",
        columns=(
            figure("idle"),
            figure("at"),
            *((Column(head="GPU"),) if several else ()),
            Column(head="cause"),
            words("where the host was"),
            words("culprit"),
            Column(head="line"),
            words("before", spare=True),
            words("after", spare=True),
        ),
        rows=tuple(
            (
                duration(row["duration_ns"]),
                instant(row["start_ns"]),
                *((gpu_name(row["report"], row["device"], several=many),) if several else ()),
                row["cause"],
                row["where"],
                row["culprit"] or "",
                _line_of_gap(row),
                row["prev_op"] or "",
                row["next_op"] or "",
            )
            for row in top.iter_rows(named=True)
        ),
        more=more(results.count_gaps(at_least_ns) - len(top), "gaps"),
    )
    return without_empty_columns(block)


def _line_of_gap(row: dict[str, Any]) -> str:
    return line_at(row["cause"], row["culprit"] or "", row["source"] or "")


def integrity(results: Results) -> Block:
    """What puts the numbers in doubt."""
    rows = results.table("integrity").iter_rows(named=True)
    block = Block(
        title="Doubts",
        columns=(words("check"), figure("count"), figure("share"), words("what it puts in doubt")),
        rows=tuple(
            (row["check"], number(row["count"]), percent(row["share_pct"]), row["impact"])
            for row in rows
        ),
    )
    return without_empty_columns(block)


def _bar(parts: list[int], width: int) -> str:
    """The parts in proportion; rounding their running sum keeps the width."""
    total = sum(parts)
    edges = [round(width * sum(parts[: index + 1]) / total) if total else 0 for index in range(4)]
    cells = [edge - before for edge, before in zip(edges, [0, *edges[:-1]], strict=True)]
    return "".join(letter * count for (_, _, letter), count in zip(BAR, cells, strict=True))


def more(count: int, table: str) -> tuple[str, ...]:
    """What a list left out and how to see it, as a line unless it is whole."""
    return (f"{number(count)} more: --table {table}",) if count > 0 else ()
