"""What `nsysflow whatif` prints of a result."""

import json

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.replay.replay import Lengths
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.report.whatif import whatif_json, whatif_lines
from tests.report.test_reviewed_pages import PAGES

NONE = dict.fromkeys(CAUSES, 0)


def result(*, step_ns: int | None = 4_000_000, after_ns: int = 3_000_000) -> WhatIf:
    return WhatIf(
        before=Lengths(window_ns=20_000_000, step_ns=step_ns, steps=5),
        after=Lengths(window_ns=15_000_000, step_ns=step_ns and after_ns, steps=5),
        idle_before=NONE | {"sync": 2_000_000, "host": 500_000},
        idle_after=NONE | {"host": 600_000},
        notes=(Note(NoteKind.OTHER_RANKS, "ranks are not replayed"),),
    )


def test_the_lines_say_what_is_saved_and_which_cause_is_left() -> None:
    lines = [line.rstrip() for line in whatif_lines("run", result())]
    assert "\n".join(lines) == (PAGES / "whatif.txt").read_text("utf-8").rstrip()


def test_a_change_that_costs_time_says_so() -> None:
    (line,) = [line for line in whatif_lines("run", result(after_ns=5_000_000)) if "step" in line]
    assert "costs 1.00 ms (25 %)" in line


def test_without_steps_the_line_says_how_to_get_them() -> None:
    assert "--step NAME" in [*whatif_lines("run", result(step_ns=None))][1]


def test_the_document_has_the_figures_in_ns() -> None:
    document = json.loads(whatif_json(result()))
    assert document["window_before_ns"] == 20_000_000
    assert document["window_after_ns"] == 15_000_000
    assert (document["step_before_ns"], document["step_after_ns"]) == (4_000_000, 3_000_000)
    assert document["idle_after"] == NONE | {"host": 600_000}
    assert document["limits"] == ["ranks are not replayed"]
