"""The note on XLA's command buffers."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.declared.notes import NoteKind
from tests.oracle.model import Diagnostic, to_trace
from tests.tiny import Row, kernel, launch, opened, plain_of

XLA = "XlaModule:#hlo_module=jit_step,program_id=7#"
IMPORT_ERROR = "Error when processing events: Cannot find string for an exterior index"
IN_A_GRAPH = replace(kernel(20, 30, 1), graph_node=5)


def notes(*rows: Row, said: str | None = None) -> list[str]:
    """The notes on command buffers of a program with these rows."""
    plain = plain_of(*rows)
    diagnostics = () if said is None else (Diagnostic(2, said),)
    trace = to_trace(replace(plain, diagnostics=diagnostics))
    found = nsysflow.analyze(trace).notes
    return [note.text for note in found if note.kind is NoteKind.COMMAND_BUFFERS]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((opened(0, 40, XLA), launch(5, 9, 1, name="cuGraphLaunch"), IN_A_GRAPH), None),
        ((opened(0, 40, XLA), launch(5, 9, 1), kernel(20, 30, 1)), IMPORT_ERROR),
    ],
)
def test_the_note_on_command_buffers_names_the_flag(
    rows: tuple[Row, ...], said: str | None
) -> None:
    (note,) = notes(*rows, said=said)
    assert "XLA_FLAGS=--xla_gpu_enable_command_buffer= nsysflow profile" in note


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((opened(0, 40, "step"), launch(5, 9, 1, name="cuGraphLaunch"), IN_A_GRAPH), IMPORT_ERROR),
        ((opened(0, 40, XLA), launch(5, 9, 1), kernel(20, 30, 1)), None),
    ],
)
def test_without_xla_or_without_its_graphs_there_is_no_such_note(
    rows: tuple[Row, ...], said: str | None
) -> None:
    assert notes(*rows, said=said) == []
