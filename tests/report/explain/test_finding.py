"""One finding in full, and what is behind it."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.tables.gaps import GAP_SUMMARY, GAPS
from nsysflow.analysis.tables.kernels import KERNELS
from nsysflow.analysis.tables.syncs import SYNCS
from nsysflow.report.explain.finding import command_lines, gaps_behind, reckoned, rows_behind
from nsysflow.report.layout import Block


def finding(changes: Changes | None, *, exact: bool = True) -> Finding:
    return behind_finding(rule="sync-in-loop", changes=changes, exact=exact)


def behind_finding(**fields: Any) -> Finding:
    common: dict[str, Any] = {"rule": "r", "title": "t", "change": (), "evidence": ()}
    return Finding(**common | {"table": "syncs", "size_ns": 1, "steps": 1} | fields)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(removed=(Removal(kind="sync", at="step"),)), "without this wait"),
        (Changes(removed_calls=((1, 2, 3),)), "without this wait"),
        (Changes(removed=(Removal(kind="alloc"),)), "without allocating and freeing"),
        (Changes(async_copies=True), "with copies that do not block the host"),
        (Changes(graphs=("step",)), "with the phase step launched as one CUDA graph"),
        (Changes(scaled=(("gemm", 0.5),)), "with the kernel gemm at 50 % of the time"),
        (Changes(scaled=(("a", 0.0), ("b", 0.0))), "with 2 kernels taking no time"),
        (
            Changes(scaled=(("a", 0.3), ("b", 0.7), ("c", 0.5))),
            "with 3 kernels at 30 % to 70 % of the time",
        ),
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


def test_without_a_replay_it_is_the_most_that_can_be_saved_if_that_is_known() -> None:
    one = finding(None)
    assert reckoned(replace(one, at_most_ns=5)).startswith("at most: the time lost there")
    assert reckoned(one) == "no replay can express the change"


def test_a_kernel_of_a_long_name_is_shortened() -> None:
    name = f"void f<{'int, ' * 40}int>()"
    assert len(reckoned(finding(Changes(scaled=((name, 0.5),))))) < 120


def test_a_short_command_is_one_line() -> None:
    (line,) = command_lines(["nsysflow", "whatif", "my report"], ["--remove", "sync@a.py:1"])
    assert line == "nsysflow whatif 'my report' --remove sync@a.py:1"


def test_a_long_command_has_a_line_for_each_option_and_is_the_same_to_a_shell() -> None:
    options = ["--async-copies", "--scale", "void f<int>()=0.5", "--graph", "a" * 100]
    lines = [*command_lines(["nsysflow", "whatif", "r"], options)]
    assert lines[1:3] == ["    --async-copies \\", "    --scale 'void f<int>()=0.5' \\"]
    typed = "\n".join(["printf '%s\\n' \\", *lines])
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["nsysflow", "whatif", "r", *options]


WIDTH: Final = 200


def rows(schema: Any, *given: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(given), schema=dict(schema))


def gaps(one: Finding, *slices: pl.DataFrame, causes: tuple[str, ...] = ("sync",)) -> list[Block]:
    def gap_slices() -> Iterator[pl.DataFrame]:
        yield from slices

    return [*gaps_behind(one, SimpleNamespace(gap_slices=gap_slices), causes)]


def gap(duration_ns: int, **fields: Any) -> dict[str, Any]:
    at = {"start_ns": 0, "duration_ns": duration_ns, "cause": "sync", "phase": "step", "device": 0}
    return at | {"prev_op": "a", "next_op": "b", "source": "x.py:1 in f"} | fields


def lengths(block: Block) -> list[str]:
    at = [column.head for column in block.columns].index("duration")
    return [row[at] for row in block.rows]


def test_gaps_of_all_slices_come_largest_first_and_the_rest_is_counted() -> None:
    first = rows(GAPS, *(gap(1000 * n) for n in (1, 5, 3)))
    second = rows(GAPS, *(gap(1000 * n) for n in (2, 6, 4)))
    (block,) = gaps(behind_finding(source="x.py:1 in f"), first, second)
    assert lengths(block) == ["6.00 us", "5.00 us", "4.00 us", "3.00 us", "2.00 us"]
    assert block.rest == "1 more: --table gaps"


def test_gaps_of_another_cause_line_or_device_are_not_behind_it() -> None:
    table = rows(
        GAPS,
        gap(1000),
        gap(2000, cause="host"),
        gap(3000, source="x.py:2 in f"),
        gap(4000, device=1),
    )
    (block,) = gaps(behind_finding(source="x.py:1 in f", device=0), table)
    assert lengths(block) == ["1.00 us"]


def test_without_a_line_the_phase_and_what_is_nested_in_it_count() -> None:
    table = rows(GAPS, gap(1000), gap(2000, phase="step/data"), gap(3000, phase="step_2"))
    (block,) = gaps(behind_finding(phase="step"), table)
    assert lengths(block) == ["2.00 us", "1.00 us"]


def test_a_finding_of_a_busy_gpu_has_no_gaps() -> None:
    assert gaps(behind_finding(), rows(GAPS, gap(1000)), causes=()) == []


def test_no_gap_gives_no_block() -> None:
    assert gaps(behind_finding(phase="step"), rows(GAPS)) == []


def test_calls_that_cost_nothing_are_left_out() -> None:
    call = {"api": "cudaStreamSynchronize", "phase": "step", "source": "x.py:1 in f"}
    table = rows(SYNCS, *(call | {"induced_idle_ns": ns} for ns in (0, 2000, 1000)))
    (block,) = rows_behind(
        behind_finding(culprit="cudaStreamSynchronize"), SimpleNamespace(syncs=table), (), WIDTH
    )
    assert [row[1] for row in block.rows] == ["2.00 us", "1.00 us"]


def calls_behind(one: Finding) -> list[str]:
    at = {"phase": "step", "source": "x.py:1 in f"}
    table = rows(
        SYNCS,
        at | {"api": "cudaStreamSynchronize", "induced_idle_ns": 1000},
        at | {"api": "cudaMemcpyAsync", "induced_idle_ns": 2000},
        at | {"api": "cudaMemcpyAsync", "induced_idle_ns": 3000, "source": "x.py:2 in f"},
    )
    blocks = rows_behind(one, SimpleNamespace(syncs=table), (), WIDTH)
    return [row[0] for block in blocks for row in block.rows]


def test_all_calls_of_a_line_count() -> None:
    one = behind_finding(source="x.py:1 in f", culprit="cudaMemcpyAsync")
    assert calls_behind(one) == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_without_a_line_only_its_own_call_counts() -> None:
    assert calls_behind(behind_finding(phase="step", culprit="cudaStreamSynchronize")) == [
        "cudaStreamSynchronize"
    ]


def test_of_idle_time_only_its_causes_count() -> None:
    idle = {"phase": "step", "total_ns": 1000}
    table = rows(GAP_SUMMARY, idle | {"cause": "host"}, idle | {"cause": "sync", "total_ns": 2000})
    one, tables = (
        behind_finding(table="gap_summary", phase="step"),
        SimpleNamespace(gap_summary=table),
    )
    (block,) = rows_behind(one, tables, ("host",), WIDTH)
    assert ["host" in row for row in block.rows] == [True]


def kernels_behind(one: Finding) -> list[str]:
    table = rows(
        KERNELS,
        {"name": "sgemm<1>", "short_name": "sgemm", "class": "matmul", "total_ns": 1000},
        {"name": "softmax<2>", "short_name": "softmax", "class": "softmax", "total_ns": 3000},
        {"name": "hgemm<3>", "short_name": "hgemm", "class": "matmul", "total_ns": 2000},
    )
    blocks = rows_behind(one, SimpleNamespace(kernels=table), (), WIDTH)
    return [row[0] for block in blocks for row in block.rows]


def test_kernels_are_those_that_the_change_scales() -> None:
    changes = Changes(scaled=(("sgemm", 0.5),))
    assert kernels_behind(behind_finding(table="kernels", changes=changes, culprit="matmul")) == [
        "sgemm"
    ]


def test_kernels_are_else_those_of_its_kernel_or_class() -> None:
    assert kernels_behind(behind_finding(table="kernels", culprit="matmul")) == ["hgemm", "sgemm"]
    assert kernels_behind(behind_finding(table="kernels", culprit="softmax")) == ["softmax"]
    assert kernels_behind(behind_finding(table="kernels")) == ["softmax", "hgemm", "sgemm"]
