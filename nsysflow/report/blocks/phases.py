"""The phases as a tree."""

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration, number, share
from nsysflow.report.fields import Limits, make_block, mean_count, more_rows
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.results import RunTables


def block(results: RunTables, limits: Limits) -> Block:
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
        f"{_part(time(top_ns), time(window_ns))}{results.per_step}",
        rest=more_rows(others + len(tree) - len(phases), "phases"),
    )


def _part(top: str, window: str) -> str:
    """How much of the window the phases have; empty where that is all."""
    return f": {top} of {window}" if top != window else ""


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
