"""What to know of a report with CUDA graphs, which nsys slows and may record in part."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.declared.diagnostics import IMPORT_ERRORS
from nsysflow.analysis.declared.notes import Note, NoteKind
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.validity.replays import recorded_idle
from nsysflow.base.units import duration

WITHOUT_COMMAND_BUFFERS: Final = (
    "XLA_FLAGS=--xla_gpu_enable_command_buffer= nsysflow profile -- python train.py"
)
"""Records a program without XLA's CUDA graphs."""

_XLA: Final = "XlaModule:#"
"""How XLA's own range around a compiled function begins."""


def notes_on_graphs(view: View) -> Iterator[Note]:
    """Notes on XLA's command buffers, and on how far replays are longer than unprofiled.

    Args:
        view: of what is judged.
    """
    yield from _command_buffers(view.events)
    if (found := recorded_idle(view)) is not None:
        yield Note(
            NoteKind.SLOWED_GRAPHS,
            f"idle inside CUDA graphs: {duration(found.idle_ns)} a step, of which up to"
            f" {duration(found.added_ns)} is the recording's, as a step takes"
            f" {duration(found.longer_ns)} longer than unprofiled; to trace each graph as a whole:"
            " nsysflow profile --graph-trace graph -- python train.py",
        )


def _command_buffers(events: Events) -> Iterator[Note]:
    """A note where XLA launches its command buffers, or where nsys may have lost those launches."""
    xla = events.ranges.filter(pl.col("name").str.starts_with(_XLA))["process"].unique()
    if xla.is_empty():
        return
    graphs = events.ops["graph_node"].is_not_null() & events.ops["process"].is_in(xla.implode())
    without = f"to record without them: {WITHOUT_COMMAND_BUFFERS}"
    if graphs.any():
        yield Note(
            NoteKind.COMMAND_BUFFERS,
            "XLA runs its command buffers here as CUDA graphs, of which nsys 2025.3 can lose"
            f" events; {without}",
        )
    elif events.trace.diagnostics["text"].str.contains(IMPORT_ERRORS).any():
        yield Note(
            NoteKind.COMMAND_BUFFERS,
            "nsys may have lost events of XLA's command buffers, if the program uses them;"
            f" {without}",
        )
