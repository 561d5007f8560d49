"""The phases: how long the GPU was busy with each, and idle while the host was in it."""

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.base.units import duration
from nsysflow.report.about import about_run, time_label
from nsysflow.report.fields import together
from nsysflow.report.figures.style import PAGE_MM, Sheet, fill, scale_in_time
from nsysflow.report.layout import printable, shorten_middle
from nsysflow.report.palette import CAUSES as COLOURS
from nsysflow.report.palette import CLASSES
from nsysflow.report.parts import Key
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.results import Results

_AXES_MM: Final = 9
_PHASE_MM: Final = 4.6

PHASES: Final = 16
"""How many phases fit into a figure: those with the most time."""

_LETTERS: Final = 40
"""A longer name leaves the bars too little room."""

_BUSY: Final = Key(label="busy with its work", colour=CLASSES["compute"])


def draw(results: Results) -> Figure | None:
    """A bar per phase in the order of the page; None without ranges or GPU work."""
    judged = results.judged
    tree, left_out = phase_tree(judged, PHASES)
    phases = [phase for phase in tree if phase.time_ns]
    if not any(phase.instances for phase in phases):
        return None
    causes = [name for name in CAUSES if any(phase.causes_ns[name] for phase in phases)]
    more = f"{left_out} shorter phases are not shown" if left_out else ""
    sheet = Sheet(
        title="GPU time of each phase: busy with its work, or idle while the host was in it",
        about=about_run(results, more) + together(results),
        width_mm=PAGE_MM,
        body_mm=_AXES_MM + _PHASE_MM * len(phases),
        keys=[_BUSY, *(Key(label=f"idle: {CAUSES[n].label}", colour=COLOURS[n]) for n in causes)],
    )
    figure = sheet.figure()
    axes = figure.subplots()
    for at, phase in enumerate(phases):
        _bar(axes, at, phase, causes, judged.step_count)
    longest_ns = max(phase.time_ns for phase in phases) / judged.step_count
    axes.set_yticks(range(len(phases)), [_name(phase) for phase in phases])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(phases) - 0.5, -0.5)
    axes.set_xlim(0, 1.1 * longest_ns)  # room for the text
    axes.grid(axis="x")
    scale_in_time(axes, "x", longest_ns, time_label(results))
    return figure


def _bar(axes: Axes, at: int, phase: Phase, causes: Sequence[str], steps: int) -> None:
    """The bar of one phase, and how long it is."""
    parts = [(phase.busy_ns, _BUSY.colour)]
    parts += [(phase.causes_ns[name], COLOURS[name]) for name in causes]
    left = 0.0
    for ns, colour in parts:
        axes.barh(at, ns / steps, 0.75, left, **fill(colour))
        left += ns / steps
    axes.text(left, at, f" {duration(round(phase.time_ns / steps))}", va="center", size=6)


def _name(phase: Phase) -> str:
    """Its path."""
    return shorten_middle(printable("/".join(phase.names)), _LETTERS)
