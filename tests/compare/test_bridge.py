from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.compare.bridge import Bridge, Delta, Status, apportioned, bridge_between, matched
from nsysflow.compare.captures import Key, Row, Side
from tests.analyses import EXAMPLES
from tests.compare.handmade import row, track


def bridge(base: Iterable[Row], new: Iterable[Row]) -> Bridge:
    return bridge_between(Side([track(*base)]), Side([track(*new)]))


def changes(deltas: Iterable[Delta]) -> int:
    return sum(each.change_ns for each in deltas)


def test_each_cause_of_idle_time_and_each_class_of_kernels_is_a_part() -> None:
    base = [row(100, 100), row(50, 50, part="idle", kind="sync", name="cudaDeviceSynchronize")]
    found = bridge(base, [row(120, 120), row(10, 10, part="idle", kind="host")])
    parts = [(each.part, each.kind, each.change.change_ns) for each in found.parts]
    assert parts == [("idle", "sync", -50), ("compute", "matmul", 20), ("idle", "host", 10)]
    assert found.total.change_ns == -20


def test_communication_is_one_part_whatever_its_kernels() -> None:
    base = [row(5, part="communication", kind="comm", name="all_reduce"), row(1)]
    new = [row(9, part="communication", kind="comm", name="reduce_scatter"), row(1)]
    first = bridge(base, new).parts[0]
    assert (first.part, first.kind, first.change.change_ns) == ("communication", "", 4)
    things = {(each.short_name, each.status) for each in first.things}
    assert things == {("all_reduce", "gone"), ("reduce_scatter", "new")}


@pytest.mark.parametrize(
    ("base", "new", "status"),
    [
        (row(100, 100), row(100, 100), "same"),
        (row(100, 100), row(150, 150), "slower"),
        (row(100, 100), row(80, 80), "faster"),
        (row(100, 100), row(200, 200, count=[2, 2]), "called more often"),
        (row(200, 200, count=[2, 2]), row(100, 100), "called less often"),
        (row(1000, 1000), row(1009, 1009), "same"),
        (row(1000, 1000), row(1011, 1011), "slower"),
        (row(100), row(30, duration_ns=[150]), "more overlapped"),
        (row(30, duration_ns=[150]), row(100), "less overlapped"),
        (row(0, duration_ns=[150], count=[1]), row(100, duration_ns=[400]), "less overlapped"),
        (row(100), row(90, duration_ns=[110]), "more overlapped"),
        (row(100), row(119, duration_ns=[125]), "slower"),
        (row(100, part="idle"), row(150, part="idle"), "longer"),
        (row(100, part="idle"), row(50, part="idle"), "shorter"),
        (row(100, 100, part="idle"), row(0, 201, part="idle"), "same"),
    ],
)
def test_what_became_of_a_thing(base: Row, new: Row, status: Status) -> None:
    ((thing,),) = (each.things for each in bridge([base], [new]).parts)
    assert thing.status == status


def test_a_kernel_with_another_grid_is_new() -> None:
    (found,) = bridge([row(100)], [row(130, grid="9x1x1")]).parts
    things = [(each.what.grid, each.status) for each in found.things]
    assert things == [("9x1x1", "new"), ("8x1x1", "gone")]


def test_a_kernel_of_two_phases_is_one_thing_in_two_phases() -> None:
    base = [row(100, phase="forward"), row(40, phase="backward")]
    new = [row(110, phase="forward"), row(70, phase="backward")]
    (found,) = bridge(base, new).parts
    assert [each.change.change_ns for each in found.things] == [40]
    phases = {name: each.change_ns for name, each in found.phases.items()}
    assert phases == {"backward": 30, "forward": 10}


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["compute", "communication", "copies", "idle"]),
        st.sampled_from(["sync", "host"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["", "step", "step/x"]),
        st.sampled_from([None, "t.py:1 in f", "t.py:2 in f", "u.py:9 in f"]),
    ),
    unique=True,
    min_size=1,
    max_size=8,
)


@st.composite
def sides(draw: st.DrawFn) -> Side:
    tracks = []
    for steps in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
        ns = st.lists(st.integers(0, 1000), min_size=steps, max_size=steps)
        rows = [
            row(*draw(ns), part=part, kind=kind, name=name, phase=phase, source=source)
            for part, kind, name, phase, source in draw(ROWS)
        ]
        tracks.append(track(*rows))
    return Side(tracks)


some = settings(max_examples=4 * EXAMPLES)


@some
@given(sides(), sides())
def test_all_lists_sum_to_what_they_are_parts_of(base: Side, new: Side) -> None:
    found = bridge_between(base, new)
    assert found.total.change_ns == round(new.mean_ns - base.mean_ns)
    assert changes(each.change for each in found.parts) == found.total.change_ns
    assert changes(found.phases.values()) == found.total.change_ns
    for each in found.parts:
        assert changes(each.phases.values()) == each.change.change_ns
        assert changes(one.change for one in each.things) == each.change.change_ns
        assert abs(each.change.new_ns - each.change.base_ns - each.change.change_ns) <= 1


@some
@given(sides())
def test_a_side_against_itself_is_all_zero(side: Side) -> None:
    found = bridge_between(side, side)
    assert found.total.change_ns == 0
    assert {one.change.change_ns for each in found.parts for one in each.things} <= {0}
    assert {one.status for each in found.parts for one in each.things} <= {"same"}


@some
@given(sides(), sides())
def test_swapping_the_sides_changes_the_sign_within_a_nanosecond(base: Side, new: Side) -> None:
    there, back = bridge_between(base, new), bridge_between(new, base)
    assert there.total.change_ns == -back.total.change_ns
    ours = {(each.part, each.kind): each.change.change_ns for each in there.parts}
    theirs = {(each.part, each.kind): each.change.change_ns for each in back.parts}
    assert ours.keys() == theirs.keys()
    assert all(abs(ours[key] + theirs[key]) <= 1 for key in ours)


WAIT = Key(
    part="idle", kind="sync", name="cudaStreamSynchronize", grid="", phase="step", source="", via=""
)


def at(source: str, via: str = "") -> Key:
    return replace(WAIT, source=source, via=via)


S42, S45, S50, S100 = (f"train.py:{line} in step" for line in (42, 45, 50, 100))
LOG, OTHER_FILE = "train.py:42 in log", "loop/steps.py:7 in step"


@pytest.mark.parametrize(
    ("base", "new", "pairs"),
    [
        ([""], [""], [("", "")]),
        ([S42], [S45], [(S42, S45)]),
        ([S42], [LOG], [(S42, None), (None, LOG)]),
        ([S42], [OTHER_FILE], [(S42, OTHER_FILE)]),
        ([S42], [OTHER_FILE, S45], [(S42, S45), (None, OTHER_FILE)]),
        # several of one function go in the order of their lines, as numbers
        ([S45, S42], [S100, S50], [(S45, S100), (S42, S50)]),
        # one that stayed is not taken for one that moved
        ([S42, S50], [S45, S42], [(S42, S42), (S50, S45)]),
    ],
)
def test_a_wait_is_the_same_where_its_function_is(
    base: list[str], new: list[str], pairs: list[tuple[str | None, str | None]]
) -> None:
    found = matched(map(at, base), map(at, new))
    assert [(ours and ours.source, theirs and theirs.source) for ours, theirs in found] == pairs


def test_a_wait_without_a_line_has_no_other_that_is_the_same() -> None:
    other = replace(WAIT, phase="step/log")
    assert matched([WAIT], [other]) == [(WAIT, None), (None, other)]


fractions = st.builds(Fraction, st.integers(-1_000, 1_000), st.integers(1, 50))


@given(st.lists(fractions, min_size=1, max_size=9))
def test_parts_sum_to_the_rounded_whole_and_are_less_than_one_off(parts: list[Fraction]) -> None:
    exact = dict(enumerate(parts))
    total = round(sum(parts))
    found = apportioned(exact, total)
    assert sum(found.values()) == total
    assert all(abs(found[key] - part) <= 1 for key, part in exact.items())
