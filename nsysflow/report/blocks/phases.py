"""The phases as a tree."""

from nsysflow.report.fields import Limits, filled, left_out
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.results import Results
from nsysflow.units import duration, number, share


def block(results: Results, limits: Limits) -> Block:
    """The tree with the GPU's time in each phase; only the host's where no GPU work was
    recorded."""
    if results.table("accounting").is_empty():
        return _host_times(results, limits)
    phases, others = phase_tree(results, limits.rows)
    window_ns = int(results.table("accounting")["window_ns"].sum())
    top_ns = next((phase.siblings_ns for phase in phases if len(phase.names) == 1), 0)
    return filled(
        "Phases",
        phases,
        (
            (words("phase"), _indented),
            (figure("count"), lambda phase: number(phase.instances)),
            (figure("host", spare=True), lambda phase: duration(phase.host_wall_ns)),
            (figure("GPU time"), lambda phase: duration(phase.time_ns)),
            (figure("share"), lambda phase: share(phase.time_ns, phase.siblings_ns)),
            (figure("nested"), lambda phase: duration(phase.children_ns)),
            (figure("busy"), lambda phase: duration(phase.busy_ns)),
            (figure("idle"), lambda phase: duration(phase.idle_ns)),
            (figure("kernel", spare=True), lambda phase: duration(phase.kernel_ns)),
            (figure("kernels", spare=True), lambda phase: number(phase.kernels)),
            (figure("launches", spare=True), lambda phase: number(phase.launches)),
        ),
        caption=(
            "GPU time: busy for the phase, or idle while the host was in it; top level:"
            f" {duration(top_ns)} of {duration(window_ns)}"
        ),
        more=left_out(others, "phases"),
    )


def _host_times(results: Results, limits: Limits) -> Block:
    phases, others = phase_tree(results, limits.rows)
    return filled(
        "Ranges",
        phases,
        (
            (words("range"), _indented),
            (figure("count"), lambda phase: number(phase.instances)),
            (figure("host"), lambda phase: duration(phase.host_wall_ns)),
            (figure("mean"), lambda phase: duration(phase.host_mean_ns)),
        ),
        caption="Time of the host; no GPU work was recorded",
        more=left_out(others, "phases"),
    )


def _indented(phase: Phase) -> str:
    return "  " * (len(phase.names) - 1) + phase.names[-1]
