"""The queue holds 1024 launches."""

from nsysflow.analysis.replay.changes.declared import Changes
from tests.analysis.replay.replays import Row, call_ends, kernel, launch, opened, timeline_of

WORK = 200
LAUNCHES = 1056


def test_a_faster_host_is_held_up_by_a_full_queue() -> None:
    """A launch of 1 us every 201 us, kernels of 100 us. Without the work between them the launches
    would be done after 1056 us, while the GPU takes 101 us for each kernel."""
    rows: list[Row] = []
    for i in range(LAUNCHES):
        start = i * (WORK + 1)
        rows += [launch(start, start + 1, i + 1), kernel(start + 2, start + 102, i + 1)]
    timeline = timeline_of(opened(0, LAUNCHES * (WORK + 1), "step"), *rows)
    ends = call_ends(timeline, Changes(faster_host=(("step", 0.0),)))
    assert ends[1023] == 1024
    # the 1041st returns when the 17th kernel is done, the first at 2 and 1 us between them
    assert ends[1040] == 2 + 17 * 101 - 1
    assert ends[1041] == ends[1040] + 1
    assert ends[1055] == ends[1040] + 15
