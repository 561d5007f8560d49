"""The replay of an unchanged program is the recorded trace."""

from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.replay.changes.declared import Changes
from tests.analyses import analysed, every_report
from tests.analysis.replay.replays import replayed
from tests.analysis.test_simulated import simulated


def off_by_ns(timeline: Timeline) -> int:
    """The largest difference between a recorded time of an operation and the replayed one."""
    times = replayed(timeline, Changes()).ops
    ops = timeline.events.ops
    off = [(times[side] - ops[side]).abs().max() for side in ("start_ns", "end_ns")]
    return max(each for each in off if isinstance(each, int)) if len(ops) else 0


@every_report
def test_an_unchanged_replay_is_the_report_to_the_ns(name: str) -> None:
    assert off_by_ns(analysed(name).timeline) == 0


def test_an_unchanged_replay_is_the_simulated_program_to_the_ns() -> None:
    analyses, _ = simulated()
    off = {name: off_by_ns(analysis.timeline) for name, analysis in analyses.items()}
    assert off == dict.fromkeys(off, 0)
