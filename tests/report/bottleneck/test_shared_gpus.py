"""Sums over steps of processes that share a GPU."""

from nsysflow.report.bottleneck.shared_gpus import once_per_gpu
from tests.report.handmade import MS, frame


def idle_ms(*steps: tuple[int, int, int, int]) -> int:
    """Of steps (process, start, end, idle), in ms."""
    rows = [
        {"process": process, "start_ns": start * MS, "end_ns": end * MS, "idle_ns": idle * MS}
        for process, start, end, idle in steps
    ]
    return once_per_gpu(frame("steps", *rows), ["idle_ns"]) // MS


def test_steps_one_after_the_other_are_added_up() -> None:
    assert idle_ms((7, 0, 10, 4), (7, 10, 20, 5)) == 9


def test_steps_at_the_same_time_count_once_with_the_larger_sum() -> None:
    assert idle_ms((7, 0, 10, 4), (8, 1, 11, 5)) == 5


def test_processes_that_take_turns_are_added_up() -> None:
    assert idle_ms((7, 0, 10, 4), (8, 10, 20, 5)) == 9


def test_without_steps_there_is_nothing() -> None:
    assert idle_ms() == 0
