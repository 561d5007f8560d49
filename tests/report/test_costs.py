"""What costs most."""

import polars as pl
import pytest

import nsysflow
from nsysflow.report.costs import costs, idle_parts, where_host_was, where_host_was_in_gap
from nsysflow.report.results import Results
from nsysflow.report.sections import dearest
from tests.report.handmade import MS, device, frame, part, results, training
from tests.reports import DATA


def place(table: str, where: pl.Expr, **row: object) -> str:
    """The host's place in one row."""
    return str(frame(table, row).select(where).item())


def test_the_dearest_comes_first() -> None:
    found = costs(Results([training()]))
    assert [(cost.cause, cost.where, cost.total_ns // MS) for cost in found] == [
        ("host", "(outside ranges)", 30),
        ("launch", "step/forward", 12),
        ("sync", "step/loss", 8),
    ]
    assert [cost.per_step_ns for cost in found] == [15 * MS, 6 * MS, 4 * MS]


def test_a_wait_is_named_by_the_phase_that_waited_not_by_the_one_that_ran_dry() -> None:
    found = costs(
        results(
            accounting=[device(100 * MS, sync_ns=8 * MS)],
            gap_summary=[part("sync", 8 * MS, host_range="step/data", phase="step/forward")],
            syncs=[{"api": "cudaStreamSynchronize", "kind": "sync", "phase": "step/loss",
                    "induced_idle_ns": 8 * MS}],
        )
    )  # fmt: skip
    assert [(cost.where, cost.culprit) for cost in found] == [
        ("step/loss", "cudaStreamSynchronize")
    ]


def test_launches_are_one_cost_whichever_call_made_them() -> None:
    rows = [part("launch", MS, host_range="step", phase="step", culprit=c) for c in ("a", "b", "")]
    (found,) = costs(results(accounting=[device(9 * MS, launch_ns=3 * MS)], gap_summary=rows))
    assert (found.total_ns, found.times, found.culprit) == (3 * MS, 3, "")


def test_work_launched_before_the_gap_is_placed_where_it_was_launched() -> None:
    row = {"cause": "queue_delay", "host_range": "", "phase": "step/forward"}
    assert place("gap_summary", where_host_was(), **row) == "step/forward"
    assert place("gaps", where_host_was_in_gap(), **row) == "step/forward"


def test_host_code_outside_ranges_is_outside_whatever_comes_next() -> None:
    row = {"cause": "host", "phase": "step/forward"}
    outside = "(outside ranges)"
    assert place("gap_summary", where_host_was(), host_range=outside, **row) == outside
    assert place("gaps", where_host_was_in_gap(), host_range="", **row) == outside


@pytest.mark.parametrize("name", ["h200-gpt2-eager", "h200-train"])
def test_every_idle_ns_is_in_exactly_one_cost(name: str) -> None:
    run = Results([nsysflow.analyze(nsysflow.load(DATA / f"{name}.sqlite.xz"))])
    by_cause = dict(idle_parts(run).group_by("cause").agg(pl.col("total_ns").sum()).rows())
    (row,) = run.table("accounting").rows(named=True)
    assert by_cause == {cause: row[f"{cause}_ns"] for cause in by_cause}
    assert sum(by_cause.values()) == row["idle_ns"]


def test_a_wait_outside_the_steps_costs_them_nothing() -> None:
    wait = {"api": "a", "kind": "sync", "induced_idle_ns": 6 * MS, "start_ns": 50 * MS}
    step = {"step": 0, "start_ns": 60 * MS, "end_ns": 90 * MS}
    run = {"accounting": [device(100 * MS, sync_ns=6 * MS)], "syncs": [wait]}
    assert [cost.per_step_ns for cost in costs(results(**run, steps=[step]))] == [0]
    assert [cost.per_step_ns for cost in costs(results(**run))] == [None]


def test_the_line_of_a_cost_is_the_one_that_holds_most_of_it() -> None:
    place = {"host_range": "step", "phase": "step"}
    lines = {"a.py:1 in f": 3 * MS, "a.py:2 in f": 5 * MS, "a.py:3 in f": 1 * MS}
    rows = [part("host", ns, **place, source=line) for line, ns in lines.items()]
    run = results(accounting=[device(90 * MS, host_ns=9 * MS)], gap_summary=rows)
    (found,) = costs(run)
    assert (found.line, found.more_lines, found.total_ns) == ("a.py:2 in f", 2, 9 * MS)
    block = dearest(run, 5)
    assert "before a.py:2 +2 more lines" in block.rows[0]


def test_idle_whose_line_is_not_known_names_no_other() -> None:
    place = {"host_range": "step", "phase": "step"}
    rows = [part("host", 9 * MS, **place), part("host", MS, **place, source="a.py:1 in f")]
    (found,) = costs(results(accounting=[device(90 * MS, host_ns=10 * MS)], gap_summary=rows))
    assert (found.line, found.more_lines) == ("", 1)
