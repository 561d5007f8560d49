"""Where most of what a budget limits is lost."""

from nsysflow.budgets.culprit import culprits_of
from nsysflow.budgets.figures import figures_of
from nsysflow.compare.captures import Capture
from tests.compare.handmade import capture, row


def places(name: str, *captures: Capture) -> list[tuple[str | None, str]]:
    figure = figures_of(captures)[name]
    return [(each.source, each.what) for each in culprits_of(figure, captures)]


def idle(*ns: int, kind: str = "sync", **other: str | None) -> Capture:
    return capture(row(1, 1), row(*ns, part="idle", kind=kind, phase="step/data", **other))


def test_it_is_the_most_idle_time_at_a_line() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase="step", source="a.py:2 in f"),
    )
    assert places("step_ms", found) == [
        ("a.py:2 in f", "host code in step, a.py:2 in f: 300 ns a step")
    ]


def test_a_place_without_a_line_comes_before_the_largest_with_one() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase=""),
    )
    assert places("idle_ms", found) == [
        (None, "host code: 300 ns a step"),
        ("a.py:1 in f", "waiting in a sync in step, a.py:1 in f: 200 ns a step"),
    ]


def test_a_line_that_costs_little_is_not_named() -> None:
    found = capture(
        row(20, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase=""),
    )
    assert places("idle_ms", found) == [(None, "host code: 300 ns a step")]


def test_it_is_of_what_the_budget_limits() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase="step", source="a.py:2 in f"),
    )
    assert [source for source, _ in places("sync.idle_behind_ms", found)] == ["a.py:1 in f"]
    assert places("kernel:gemm.ms", found) == []


def test_it_is_the_mean_over_all_captures() -> None:
    captures = [idle(100, 200, source="a.py:1"), idle(300, 400, source="a.py:1")]
    assert places("idle_ms", *captures) == [
        ("a.py:1", "waiting in a sync in step/data, a.py:1: 250 ns a step")
    ]
