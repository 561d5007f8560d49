"""Where time goes: all recorded time, each GPU's, that of phases, waits of the host, and MFU."""

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import line, without_function
from nsysflow.analysis.replay.changes import Removal
from nsysflow.base.names import OUTSIDE, one_line
from nsysflow.base.units import duration, flops, number, percent, share, whole_percent
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    gpu_field,
    gpu_fields,
    gpus_together,
    make_block,
    mean_count,
    more_rows,
    named_rows,
    time_and_share,
    value,
)
from nsysflow.report.layout import (
    BAR_LETTERS,
    Block,
    Column,
    bar,
    figure,
    without_empty_columns,
    words,
)
from nsysflow.report.ledger import part_name
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.results import RunTables, gpu_name, or_outside

PARTS: Final = (
    ("compute_ns", "compute"),
    ("comm_exposed_ns", "comm"),
    ("copy_exposed_ns", "copy"),
    ("idle_ns", "idle"),
)
"""The parts of a window in the order of the accounting."""

_MOST_CAUSES: Final = 3
"""So many causes of idle time fit on a line."""


def accounting_block(results: RunTables, limits: Limits) -> Block:
    """A row per GPU: its window, and the parts of it with a bar."""
    table = results.table("accounting")
    # several GPUs have longer names and smaller parts
    width = 30 if table.height == 1 else 15
    drawn = Column(head="", spare=True, drawn=True)
    return make_block(
        "GPU time",
        named_rows(table, limits),
        (
            gpu_field(results),
            (
                figure("step" if results.of_steps else "window"),
                _time_per_step(results, "window_ns"),
            ),
            (drawn, lambda row: bar([row[column] for column, _ in PARTS], width)),
            *(
                _part_field(results, *part, letter)
                for part, letter in zip(PARTS, BAR_LETTERS, strict=False)
            ),
        ),
        caption=f"Communication and copies: the part not overlapped by compute{results.per_step}",
        more=_idle_by_cause(results),
        rest=more_rows(table.height - limits.rows, "accounting"),
    )


def _time_per_step(results: RunTables, column: str) -> Callable[[Row], str]:
    return lambda row: duration(round(row[column] / _steps(results, row)))


def _steps(results: RunTables, row: Row) -> int:
    return results.steps_on(row["report"], row["device"])


def _part_field(results: RunTables, column: str, head: str, letter: str) -> Field[Row]:
    def cell(row: Row) -> str:
        steps = _steps(results, row)
        return time_and_share(round(row[column] / steps), round(row["window_ns"] / steps))

    return Column(head=head, right=True, letter=letter), cell


def _idle_by_cause(results: RunTables) -> tuple[str, ...]:
    """`idle: host code 105 ms 34 %, …`, largest first; nothing without idle time."""
    accounting = results.table("accounting")
    window_ns = int(accounting["window_ns"].sum())
    steps = max(1, *(_steps(results, row) for row in accounting.iter_rows(named=True)), 1)
    sums = {cause.label: int(accounting[f"{name}_ns"].sum()) for name, cause in CAUSES.items()}
    ranked = sorted((item for item in sums.items() if item[1]), key=lambda item: -item[1])
    parts = [
        f"{label} {time_and_share(round(ns / steps), round(window_ns / steps))}"
        for label, ns in ranked[:_MOST_CAUSES]
    ]
    parts += ["…"] if len(ranked) > _MOST_CAUSES else []
    return (f"idle: {', '.join(parts)}",) if parts else ()


_WITH_PLACE: Final = ("recurring", "longer", "between")
"""The parts whose largest idle time is somewhere that people want to know."""


def run_block(results: RunTables, limits: Limits) -> Block:
    """The parts of the recorded time; none where all but start-up and end are typical steps."""
    table = results.table("run")
    worth = pl.col("part").cast(pl.String).is_in(["recurring", "longer", "loop", "between"])
    if table.filter(worth).is_empty():
        table = table.clear()
    return make_block(
        "Run",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (Column(head=""), part_name),
            (figure("time"), value("time_ns", duration)),
            (figure("steps"), value("count", number)),
            (figure("over a typical step"), value("excess_ns", duration)),
            (figure("GPU busy"), lambda row: whole_percent(row["busy_ns"], row["time_ns"])),
            (words("waits mostly for"), _mostly),
        ),
        caption="All recorded time",
        rest=more_rows(table.height - limits.rows, "run"),
    )


def _mostly(row: Row) -> str:
    """What takes most of the idle time there: `host code 968 ms in save, checkpoint_each.py:10`."""
    if not row["cause_ns"]:
        return ""
    mostly = f"{CAUSES[row['cause']].label} {duration(row['cause_ns'])}"
    if row["part"] not in _WITH_PLACE:
        return mostly
    at = line(row["source"] or "", row["via"] or "")
    return f"{mostly} in {one_line(row['phase'] or OUTSIDE)}{at and f', {at}'}"


def phases_block(results: RunTables, limits: Limits) -> Block:
    """The tree with the GPU's time in each phase; only the host's where no GPU work was
    recorded."""
    if results.table("accounting").is_empty():
        return _host_times(results, limits)
    tree, others = phase_tree(results, limits.rows)
    phases = [phase for phase in tree if phase.time_ns]
    steps = results.step_count
    window_ns = int(results.table("accounting")["window_ns"].sum())
    top_ns = next((phase.siblings_ns for phase in phases if len(phase.names) == 1), 0)

    def time(ns: int | None) -> str:
        return "" if ns is None else duration(round(ns / steps))

    def count(of: int | None) -> str:
        return "" if of is None else mean_count(of, steps)

    return make_block(
        "Phases",
        phases,
        (
            (words("phase"), _indented),
            (figure("GPU time"), lambda phase: time(phase.time_ns)),
            (figure("share"), lambda phase: share(phase.time_ns, phase.siblings_ns)),
            (figure("busy"), lambda phase: time(phase.busy_ns)),
            (figure("idle"), lambda phase: time(phase.idle_ns)),
            (words("bound"), lambda phase: phase.bound.replace("_", " ").replace("+", ", ")),
            (words("idle mostly", spare=True), _main_cause),
            (figure("kernels", spare=True), lambda phase: count(phase.kernels)),
            (figure("launches", spare=True), lambda phase: count(phase.launches)),
            (figure("host", spare=True), lambda phase: time(phase.host_wall_ns)),
        ),
        caption="GPU time by phase; idle time counts where the host was"
        f"{_overlap(top_ns, window_ns, time)}{results.per_step}",
        rest=more_rows(others + len(tree) - len(phases), "phases"),
    )


def _overlap(top_ns: int, window_ns: int, time: Callable[[int], str]) -> str:
    """By how much the work of phases overlaps; empty where it does not."""
    top, window = time(top_ns), time(window_ns)
    if top_ns <= window_ns or top == window:
        return ""
    return f": {top} in {window}, as work of several phases runs at once"


def _main_cause(phase: Phase) -> str:
    return CAUSES[phase.main_cause].label if phase.main_cause else ""


def _host_times(results: RunTables, limits: Limits) -> Block:
    phases, others = phase_tree(results, limits.rows)
    return make_block(
        "Ranges",
        phases,
        (
            (words("range"), _indented),
            (figure("count"), lambda phase: number(phase.instances)),
            (figure("host"), lambda phase: duration(phase.host_wall_ns)),
            (figure("mean"), lambda phase: duration(phase.host_mean_ns)),
        ),
        caption="Time of the host; no GPU work was recorded",
        rest=more_rows(others, "phases"),
    )


def _indented(phase: Phase) -> str:
    return "  " * (len(phase.names) - 1) + phase.names[-1]


_PLACE: Final = ("api", "phase", "source", "via")

WORTH: Final = 0.005
"""A wait that lasts, or has idle time behind it, for less than this share of the window is not
worth a row: a finding is worth twice as much."""


def syncs_block(results: RunTables, limits: Limits) -> Block:
    """Waits by call, line and phase: those with the most idle time behind them, and the longest,
    which may have none."""
    grouped = _grouped(results)
    steps = results.step_count
    alone = _savings_by_place(results)
    shown = _worth_a_row(results, grouped, limits.rows)

    def time(column: str) -> Callable[[Row], str]:
        return lambda row: duration(round(row[column] / steps))

    waits = make_block(
        "Waits",
        shown.iter_rows(named=True),
        (
            (figure("idle behind it"), time("induced_idle_ns")),
            (
                figure("alone"),
                lambda row: duration(alone.get(tuple(row[name] for name in _PLACE))),
            ),
            (figure("blocked"), time("blocked_ns")),
            (figure("GPU busy", spare=True), time("gpu_busy_ns")),
            (figure("calls"), lambda row: _calls(row["calls"], steps)),
            (words("call"), value("api")),
            (Column(head="line"), lambda row: without_function(line(row["source"], row["via"]))),
            (words("phase"), value("phase")),
        ),
        caption=f"Alone: what {'a step' if results.of_steps else 'the window'} saves without this"
        f" wait{_all_allocations(results)}{results.per_step}{gpus_together(results)}",
        rest=more_rows(len(grouped) - len(shown), "syncs"),
    )
    return without_empty_columns(waits)


def _all_allocations(results: RunTables) -> str:
    """Which row has what all allocations together would save, where several have some."""
    removing = (one.finding for one in results.whole.found.valued if one.finding.table == "syncs")
    ours = [one.culprit for one in removing if one.changes and one.changes.removed in _EVERYWHERE]
    rows = results.table("syncs").filter(pl.col("kind").cast(pl.String) == "alloc")
    several = rows.select(*_PLACE).unique().height > 1
    return f" ({ours[0]}: without all calls for memory)" if ours and several else ""


_EVERYWHERE: Final = ((Removal(kind="alloc"),), (Removal(kind="churn"),))
"""Findings that remove allocations do so wherever they are."""


def _calls(count: int, steps: int) -> str:
    """How many there are per step; of fewer than one, in how many steps one comes: `1 in 10`."""
    some = Fraction(count, steps).limit_denominator(10)
    if count >= steps or not some:
        return mean_count(count, steps)
    return f"{some.numerator} in {some.denominator}"


def _worth_a_row(results: RunTables, grouped: pl.DataFrame, rows: int) -> pl.DataFrame:
    """The waits with the most idle time behind them, and the longest."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    idle = grouped.filter(pl.col("induced_idle_ns") > WORTH * window_ns)
    shown = idle.head(rows)
    by_time = grouped.sort("blocked_ns", descending=True, maintain_order=True)
    long = (pl.col("calls") >= results.step_count / 2) & (pl.col("blocked_ns") > WORTH * window_ns)
    longest = by_time.filter(long).head(1)
    if not longest.is_empty() and longest.row(0) not in shown.rows():
        shown = pl.concat([shown.head(rows - 1), longest])
    return shown


def _savings_by_place(results: RunTables) -> dict[tuple[str, ...], int]:
    """What the findings that are waits save, by place."""
    found = ((one.finding, one.low_ns or one.high_ns) for one in results.whole.found.valued)
    return {
        (one.culprit, one.phase or OUTSIDE, one.source, one.via): saved_ns
        for one, saved_ns in found
        if one.table == "syncs" and one.changes is not None
    }


def _grouped(results: RunTables) -> pl.DataFrame:
    lines = pl.col("source", "via").fill_null("")
    key = (pl.col("api").cast(pl.String), or_outside("phase"), lines)
    times = pl.col("induced_idle_ns", "blocked_ns", "gpu_busy_ns").sum()
    waits = results.table("syncs").group_by(*key).agg(pl.len().alias("calls"), times)
    return waits.sort(
        *("induced_idle_ns", "blocked_ns", *_PLACE),
        descending=[True, True, *[False] * len(_PLACE)],
    )


def mfu_block(results: RunTables, limits: Limits) -> Block:
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
