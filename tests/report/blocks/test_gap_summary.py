"""Idle time by cause and place."""

from nsysflow.report.blocks.gap_summary import block, idle_costs
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from nsysflow.report.results import Results
from tests.report.handmade import MS, device, part, results, training

TRAINING = Results([training()])


def summary(of: Results, rows: int = 7) -> Block:
    return block(of, Limits(rows=rows))


def test_the_largest_comes_first() -> None:
    costs = idle_costs(TRAINING)
    assert [(cost.cause, cost.where, cost.total_ns // MS) for cost in costs] == [
        ("host", "(outside ranges)", 30),
        ("launch", "step/forward", 12),
        ("sync", "step/loss", 8),
    ]
    assert [cost.per_step_ns for cost in costs] == [15 * MS, 6 * MS, 4 * MS]


def test_a_cause_is_shown_in_words() -> None:
    causes = [row[4] for row in summary(TRAINING).rows]
    assert causes == ["host code", "launch overhead", "waiting in a sync"]


def test_the_waiting_phase_is_shown_only_where_the_host_was_elsewhere() -> None:
    assert [row[-1] for row in summary(TRAINING).rows] == ["step/forward", "", ""]


def test_launches_are_one_row_whichever_call_made_them() -> None:
    rows = [part("launch", MS, host_range="step", phase="step", culprit=c) for c in ("a", "b", "")]
    (cost,) = idle_costs(results(accounting=[device(9 * MS, launch_ns=3 * MS)], gap_summary=rows))
    assert (cost.total_ns, cost.times, cost.culprit) == (3 * MS, 3, "")


def test_a_wait_is_placed_where_it_was_called_not_where_the_gpu_ran_out_of_work() -> None:
    wait = {"api": "cudaStreamSynchronize", "kind": "sync", "phase": "step/loss"}
    (cost,) = idle_costs(
        results(
            accounting=[device(100 * MS, sync_ns=8 * MS)],
            gap_summary=[part("sync", 8 * MS, host_range="step/data", phase="step/forward")],
            syncs=[{**wait, "induced_idle_ns": 8 * MS}],
        )
    )
    assert (cost.where, cost.culprit) == ("step/loss", "cudaStreamSynchronize")


def test_the_line_is_the_one_with_most_of_the_idle_time() -> None:
    place = {"host_range": "step", "phase": "step"}
    lines = {"a.py:1 in f": 3 * MS, "a.py:2 in f": 5 * MS, "a.py:3 in f": 1 * MS}
    rows = [part("host", ns, **place, source=line) for line, ns in lines.items()]
    run = results(accounting=[device(90 * MS, host_ns=9 * MS)], gap_summary=rows)
    (cost,) = idle_costs(run)
    assert (cost.line, cost.more_lines, cost.total_ns) == ("a.py:2 in f", 2, 9 * MS)
    assert "before a.py:2 +2 more lines" in summary(run).rows[0]


def test_idle_time_without_a_known_line_is_not_given_to_another_line() -> None:
    place = {"host_range": "step", "phase": "step"}
    rows = [part("host", 9 * MS, **place), part("host", MS, **place, source="a.py:1 in f")]
    (cost,) = idle_costs(results(accounting=[device(90 * MS, host_ns=10 * MS)], gap_summary=rows))
    assert (cost.line, cost.more_lines) == ("", 1)


def test_the_caption_says_that_several_gpus_are_summed() -> None:
    both = Results([training(), training()])
    assert summary(both).caption.endswith("; 2 GPUs together")
    assert "together" not in summary(TRAINING).caption
