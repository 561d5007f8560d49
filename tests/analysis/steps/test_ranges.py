"""Which range is a step and where each step runs, on traces of a few rows."""

from tests.tiny import Row, kernel, launch, opened, timeline_of


def loop(name: str, count: int, *, first: int = 0, busy: int = 10) -> list[Row]:
    """`count` ranges of 100 ns with a launch and a kernel of `busy` ns each."""
    rows: list[Row] = []
    for number in range(count):
        at = first + 100 * number
        key = first + number + 1
        rows += [opened(at, at + 90, name), launch(at + 5, at + 9, key)]
        rows.append(kernel(at + 20, at + 20 + busy, key))
    return rows


def test_the_range_that_repeats_and_holds_most_gpu_time_is_the_step() -> None:
    rows = [*loop("train", 3, busy=30), *loop("eval", 4, first=1_000, busy=5)]
    assert timeline_of(*rows).step_paths["joined"].to_list() == ["train"]


def test_a_range_that_repeats_only_twice_is_not_a_step() -> None:
    assert timeline_of(*loop("train", 2)).step_paths.is_empty()


def test_a_step_runs_from_its_first_kernel_to_the_first_of_the_next_step() -> None:
    steps = timeline_of(*loop("train", 3)).steps
    assert steps.select("step", "start_ns", "end_ns").rows() == [
        (0, 20, 120),
        (1, 120, 220),
        (2, 220, 230),
    ]


def test_a_gap_counts_in_the_step_in_which_it_starts() -> None:
    timeline = timeline_of(*loop("train", 3))
    assert timeline.gaps.select("start_ns", "step").rows() == [(30, 0), (130, 1)]
