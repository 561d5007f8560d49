"""Which thread's ranges a launch belongs to, on traces of a few rows."""

from tests.tiny import AUTOGRAD, MAIN, OTHER, WORKER, Row, call, kernel, launch, opened, timeline_of


def place(thread: int, *ranges: Row) -> tuple[str, str | None]:
    """The phase of a kernel that `thread` launches at 100, and how it got it."""
    main_is_seen = call(0, 1, "cudaGetDevice", thread=MAIN)
    rows = (main_is_seen, launch(100, 110, 1, thread=thread), kernel(120, 130, 1), *ranges)
    timeline = timeline_of(*rows)
    (name,) = timeline.attribution.name_of(timeline.ops["node"])
    (how,) = timeline.ops["how"]
    return name, how


def test_a_launch_belongs_to_the_ranges_open_on_its_thread() -> None:
    ranges = opened(0, 500, "step"), opened(50, 200, "forward")
    assert place(MAIN, *ranges) == ("step/forward", "own")


def test_a_range_that_ended_or_has_not_begun_does_not_count() -> None:
    assert place(MAIN, opened(0, 100, "before"), opened(101, 200, "after")) == ("", None)


def test_an_autograd_thread_stacks_its_ranges_on_those_of_the_main_thread() -> None:
    ranges = opened(0, 500, "backward"), opened(90, 200, "MulBackward", thread=AUTOGRAD)
    assert place(AUTOGRAD, *ranges) == ("backward/MulBackward", "borrowed")


def test_a_thread_without_ranges_inherits_those_of_the_main_thread() -> None:
    ranges = opened(0, 500, "step"), opened(0, 500, "load", thread=OTHER)
    assert place(WORKER, *ranges) == ("step", "borrowed")


def test_a_thread_with_ranges_of_its_own_inherits_none() -> None:
    ranges = opened(0, 500, "step"), opened(0, 500, "load", thread=WORKER)
    assert place(WORKER, *ranges) == ("load", "own")


def test_the_only_other_thread_with_a_range_counts_if_the_main_thread_has_none() -> None:
    assert place(WORKER, opened(0, 500, "load", thread=OTHER)) == ("load", "borrowed")


def test_neither_of_two_other_threads_with_ranges_counts() -> None:
    ranges = opened(0, 500, "load", thread=OTHER), opened(0, 500, "save", thread=OTHER + 1)
    assert place(WORKER, *ranges) == ("", None)


def test_the_main_thread_inherits_nothing() -> None:
    assert place(MAIN, opened(0, 500, "load", thread=WORKER)) == ("", None)


def test_nothing_is_inherited_from_an_autograd_thread() -> None:
    assert place(WORKER, opened(0, 500, "MulBackward", thread=AUTOGRAD)) == ("", None)


def test_without_any_stack_the_latest_start_end_range_of_the_process_counts() -> None:
    ranges = [opened(start, 500, f"span at {start}", kind="start_end") for start in (10, 40)]
    assert place(WORKER, *ranges) == ("span at 40", "process_range")
    assert place(WORKER, *ranges, opened(0, 500, "step")) == ("step", "borrowed")
