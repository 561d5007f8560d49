"""Launches that become one launch of a graph: 8 us for the host, 500 ns between operations."""

from nsysflow.analysis.replay.changes.declared import Changes
from tests.analysis.replay.replays import (
    Row,
    call,
    call_ends,
    kernel,
    kernel_starts,
    launch,
    opened,
    timeline_of,
)

GRAPH = Changes(graphs=("forward",))


def three(*, at: int = 0) -> list[Row]:
    """Launches of 5 us, 20 us apart, each with a kernel of 5 us after 10 us."""
    return [
        row
        for i in range(3)
        for start in [at + 20 * i]
        for row in (
            launch(start, start + 5, at + i + 1),
            kernel(start + 10, start + 15, at + i + 1),
        )
    ]


def test_a_phase_s_launches_are_one_call_and_its_operations_follow_each_other() -> None:
    timeline = timeline_of(opened(0, 50, "forward"), *three(), launch(60, 65, 9))
    # 10 us of work lie between the phase and the launch behind it
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 23]
    assert kernel_starts(timeline, GRAPH) == [10, 15.5, 21]


def test_a_row_of_launches_ends_at_a_wait() -> None:
    timeline = timeline_of(
        opened(0, 145, "forward"),
        *three(),
        call(60, 62, "cudaStreamSynchronize"),
        *three(at=80),
    )
    # the last kernel ends at 26 and the wait takes 2 us more; after 18 us of work the second graph
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 28, 54, 54, 54]


def test_a_row_of_launches_ends_with_its_instance() -> None:
    timeline = timeline_of(
        opened(0, 50, "forward"), opened(80, 130, "forward"), *three(), *three(at=80)
    )
    # 30 us between the phases, and the 5 us behind the first one's last launch are a little
    assert call_ends(timeline, GRAPH) == [8, 8, 8, 51, 51, 51]


def test_launches_outside_the_phase_stay() -> None:
    timeline = timeline_of(opened(75, 130, "forward"), *three(), *three(at=80))
    assert call_ends(timeline, GRAPH)[:3] == [5, 25, 45]


def test_of_the_host_s_time_in_a_whole_phase_only_a_little_stays() -> None:
    timeline = timeline_of(opened(5, 130, "forward"), launch(0, 5, 99), *three(at=80))
    # 25 of 75 us before the first launch
    assert call_ends(timeline, GRAPH) == [5, 38, 38, 38]


def test_the_host_s_time_in_a_phase_with_a_wait_stays() -> None:
    wait = call(140, 141, "cudaStreamSynchronize")
    timeline = timeline_of(opened(5, 145, "forward"), launch(0, 5, 99), *three(at=80), wait)
    assert call_ends(timeline, GRAPH)[:4] == [5, 88, 88, 88]
