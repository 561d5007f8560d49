"""What `nsysflow whatif` prints of a result."""

import json

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.replay.replay import Lengths
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.report.whatif import whatif_json, whatif_lines

NONE = dict.fromkeys(CAUSES, 0)


def result(*, step_ns: int | None = 4_000_000, after_ns: int = 3_000_000) -> WhatIf:
    return WhatIf(
        before=Lengths(window_ns=20_000_000, step_ns=step_ns, steps=5),
        after=Lengths(window_ns=15_000_000, step_ns=step_ns and after_ns, steps=5),
        idle_before=NONE | {"sync": 2_000_000, "host": 500_000},
        idle_after=NONE | {"host": 600_000},
        notes=(Note(NoteKind.OTHER_RANKS, "ranks are not replayed"),),
    )


def test_step_and_window_say_what_is_saved_and_of_how_many_steps() -> None:
    lines = [*whatif_lines("run", result())]
    assert lines[0] == "run replayed; times are as recorded, under the profiler"
    assert "4.00 ms → 3.00 ms" in lines[1]
    assert lines[1].endswith("saves 1.00 ms (25 %), the mean of 5 steady steps")
    assert lines[2].endswith("saves 5.00 ms (25 %)")


def test_a_change_that_costs_time_says_so() -> None:
    (line,) = [line for line in whatif_lines("run", result(after_ns=5_000_000)) if "step" in line]
    assert "costs 1.00 ms (25 %)" in line


def test_causes_are_in_the_order_of_what_is_left_and_the_largest_is_named() -> None:
    lines = [*whatif_lines("run", result())]
    rows = [line.split()[:2] for line in lines if line.startswith("  ")]
    assert rows == [["host", "code"], ["waiting", "in"]]
    assert "then the largest cause of idle time: host code" in lines


def test_limits_stand_below_the_figures() -> None:
    assert [*whatif_lines("run", result())][-1] == "limit: ranks are not replayed"


def test_without_steps_the_line_says_how_to_get_them() -> None:
    assert "--step NAME" in [*whatif_lines("run", result(step_ns=None))][1]


def test_the_document_has_the_figures_in_ns() -> None:
    document = json.loads(whatif_json(result()))
    assert document["window_before_ns"] == 20_000_000
    assert document["window_after_ns"] == 15_000_000
    assert (document["step_before_ns"], document["step_after_ns"]) == (4_000_000, 3_000_000)
    assert document["idle_after"] == NONE | {"host": 600_000}
    assert document["limits"] == ["ranks are not replayed"]
