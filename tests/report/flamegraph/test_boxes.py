"""The tree of idle time."""

import polars as pl

from nsysflow.report.flamegraph import Box, boxes
from tests.report.flamegraph.stacks import NOTHING, OWN, ROWS, idle_stacks
from tests.report.handmade import MS


def at(root: Box, *names: str) -> Box:
    """The box that is reached by these names."""
    for name in names:
        (root,) = (each for each in root.children.values() if each.place.name == name)
    return root


def every(box: Box) -> list[Box]:
    return [box, *(below for child in box.children.values() for below in every(child))]


def test_a_stack_lies_below_its_phase_and_cause() -> None:
    root = boxes(idle_stacks(*ROWS))
    found = at(root, "step/data", "host code", "main", "collate", "tokenize")
    assert (root.ns, found.ns) == (100 * MS, 60 * MS)
    assert (found.place.file, found.line) == ("tok.py", 4)


def test_a_box_is_as_wide_as_all_below_it_and_what_ran_in_itself() -> None:
    root = boxes(idle_stacks(*ROWS, ("step/data", "host", ("main (train.py:9)",), 7)))
    main = at(root, "step/data", "host code", "main")
    assert main.ns == 87 * MS
    assert sum(child.ns for child in main.children.values()) == 80 * MS
    assert all(box.ns >= sum(child.ns for child in box.children.values()) for box in every(root))


def test_lines_of_one_function_share_a_box_with_the_line_that_took_longest() -> None:
    rows = [("step", "host", (f"main (train.py:{line})",), ms) for line, ms in ((9, 1), (12, 2))]
    main = at(boxes(idle_stacks(*rows)), "step", "host code", "main")
    assert (main.ns, main.line) == (3 * MS, 12)


def test_functions_of_one_name_in_two_files_are_two_boxes() -> None:
    rows = [("step", "host", (f"forward ({file}:1)",), 1) for file in ("a.py", "b.py")]
    assert len(at(boxes(idle_stacks(*rows)), "step", "host code").children) == 2


def test_a_box_says_whose_code_it_is() -> None:
    root = boxes(idle_stacks(*ROWS, ("step", "launch", ("aten::normal_",), 1)), OWN)
    kinds = {box.place.name: box.place.kind for box in every(root)}
    assert (kinds["tokenize"], kinds["save"]) == ("own", "library")
    assert (kinds["(not sampled)"], kinds["aten::normal_"]) == ("unknown", "library")
    assert kinds["(outside ranges)"] == "phase"


def test_reports_have_boxes_only_where_there_are_several() -> None:
    one = idle_stacks(("step", "host", NOTHING, 1))
    two = pl.concat([one, idle_stacks(("step", "host", NOTHING, 2), report="rank1.sqlite")])
    assert [box.place.name for box in boxes(two).widest_first] == ["rank1.sqlite", "run.sqlite"]
    assert [box.place.kind for box in boxes(one).widest_first] == ["phase"]


def test_a_stack_of_a_thousand_calls_is_no_problem() -> None:
    deep = tuple(f"f (a.py:{line})" for line in range(1_000))
    root, depth = boxes(idle_stacks(("step", "host", deep, 1))), 0
    while root.children:
        (root,), depth = root.children.values(), depth + 1
    assert depth == 1_002
