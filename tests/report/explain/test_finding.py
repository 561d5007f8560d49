"""How a saving was reckoned, in words."""

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.replay.changes.declared import Changes, Removal
from nsysflow.report.explain.finding import reckoned


def finding(changes: Changes | None, *, exact: bool = True) -> Finding:
    return Finding(
        rule="sync-in-loop",
        title="a wait",
        change=("remove it",),
        evidence=("it waits",),
        table="syncs",
        size_ns=1,
        steps=1,
        changes=changes,
        exact=exact,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(removed=(Removal(kind="sync", at="step"),)), "without this wait"),
        (Changes(removed_calls=((1, 2, 3),)), "without this wait"),
        (Changes(removed=(Removal(kind="alloc"),)), "without allocating and freeing"),
        (Changes(async_copies=True), "with copies that do not block the host"),
        (Changes(graphs=("step",)), "with the phase step launched as one CUDA graph"),
        (Changes(scaled=(("gemm", 0.5),)), "with gemm at 50 % of the time"),
        (Changes(scaled=(("a", 0.0), ("b", 0.0))), "with a and 1 more at 0 % of the time"),
        (Changes(faster_host=(("data", 0.0),)), "with the host's code in data taking no time"),
        (Changes(no_profiler=True), "without the profiler's own work"),
        (
            Changes(removed=(Removal(kind="sync"), Removal(kind="copy"))),
            "without this wait and with copies that do not block the host",
        ),
    ],
)
def test_a_replay_says_what_is_different_in_it(changes: Changes, said: str) -> None:
    assert reckoned(finding(changes)) == f"replayed: the recorded steps {said}"


def test_a_replay_of_another_change_is_the_most_that_can_be_saved() -> None:
    said = reckoned(finding(Changes(no_profiler=True), exact=False))
    assert said.startswith("at most: the recorded steps replayed without the profiler's own work")


def test_without_a_replay_it_is_the_most_that_can_be_saved() -> None:
    assert reckoned(finding(None)).startswith("at most: ")
