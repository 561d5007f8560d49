"""Which ranges were open on a thread, on traces of a few rows."""

import pytest

from tests.tiny import Row, kernel, launch, opened, timeline_of


def places(*ranges: Row, at: tuple[int, ...]) -> list[str]:
    """The phase of a kernel launched at each of these times."""
    launches = [launch(time, time + 1, number) for number, time in enumerate(at, start=1)]
    kernels = [kernel(10_000 + 10 * number, 10_005 + 10 * number, number) for number in
               range(1, len(at) + 1)]  # fmt: skip
    timeline = timeline_of(*ranges, *launches, *kernels)
    return timeline.attribution.name_of(timeline.ops["node"]).to_list()


def test_ranges_nest_by_time() -> None:
    nested = opened(0, 100, "a"), opened(10, 50, "b"), opened(20, 30, "c")
    assert places(*nested, at=(5, 15, 25, 35, 60, 100)) == ["a", "a/b", "a/b/c", "a/b", "a", ""]


def test_the_longer_of_two_ranges_that_begin_together_is_outside() -> None:
    assert places(opened(10, 20, "short"), opened(10, 90, "long"), at=(15,)) == ["long/short"]


def test_ranges_that_overlap_without_nesting_stack_in_the_order_of_their_starts() -> None:
    crossing = opened(0, 50, "a"), opened(30, 80, "b")
    assert places(*crossing, at=(10, 40, 60)) == ["a", "a/b", "b"]


def test_a_range_without_an_end_is_open_to_the_end() -> None:
    assert places(opened(10, None, "open"), at=(5, 15, 9_000)) == ["", "open", "open"]


def test_a_range_of_no_length_is_never_open() -> None:
    assert places(opened(10, 10, "nothing"), at=(10,)) == [""]


@pytest.mark.parametrize("number", [1, 17])
def test_steps_that_differ_in_their_number_are_one_phase(number: int) -> None:
    numbered = [opened(100 * n, 100 * n + 90, f"step {n}") for n in (number, number + 1)]
    assert places(*numbered, at=(100 * number + 5, 100 * number + 105)) == ["step", "step"]
