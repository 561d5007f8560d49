"""Which gaps and rows are behind a finding: those of its place, call or kernels."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.tables.schema import GAP_SUMMARY, GAPS, KERNELS, SYNCS
from nsysflow.report.explain.finding import gaps_behind, rows_behind
from nsysflow.report.layout import Block

WIDTH: Final = 200


def finding(**fields: Any) -> Finding:
    common: dict[str, Any] = {"rule": "r", "title": "t", "change": (), "evidence": ()}
    return Finding(**common | {"table": "syncs", "size_ns": 1, "steps": 1} | fields)


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
    (block,) = gaps(finding(source="x.py:1 in f"), first, second)
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
    (block,) = gaps(finding(source="x.py:1 in f", device=0), table)
    assert lengths(block) == ["1.00 us"]


def test_without_a_line_the_phase_and_what_is_nested_in_it_count() -> None:
    table = rows(GAPS, gap(1000), gap(2000, phase="step/data"), gap(3000, phase="step_2"))
    (block,) = gaps(finding(phase="step"), table)
    assert lengths(block) == ["2.00 us", "1.00 us"]


def test_a_finding_of_a_busy_gpu_has_no_gaps() -> None:
    assert gaps(finding(), rows(GAPS, gap(1000)), causes=()) == []


def test_no_gap_gives_no_block() -> None:
    assert gaps(finding(phase="step"), rows(GAPS)) == []


def test_calls_that_cost_nothing_are_left_out() -> None:
    call = {"api": "cudaStreamSynchronize", "phase": "step", "source": "x.py:1 in f"}
    table = rows(SYNCS, *(call | {"induced_idle_ns": ns} for ns in (0, 2000, 1000)))
    (block,) = rows_behind(
        finding(culprit="cudaStreamSynchronize"), SimpleNamespace(syncs=table), (), WIDTH
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
    one = finding(source="x.py:1 in f", culprit="cudaMemcpyAsync")
    assert calls_behind(one) == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_without_a_line_only_its_own_call_counts() -> None:
    assert calls_behind(finding(phase="step", culprit="cudaStreamSynchronize")) == [
        "cudaStreamSynchronize"
    ]


def test_of_idle_time_only_its_causes_count() -> None:
    idle = {"phase": "step", "total_ns": 1000}
    table = rows(GAP_SUMMARY, idle | {"cause": "host"}, idle | {"cause": "sync", "total_ns": 2000})
    one, tables = finding(table="gap_summary", phase="step"), SimpleNamespace(gap_summary=table)
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
    assert kernels_behind(finding(table="kernels", changes=changes, culprit="matmul")) == ["sgemm"]


def test_kernels_are_else_those_of_its_kernel_or_class() -> None:
    assert kernels_behind(finding(table="kernels", culprit="matmul")) == ["hgemm", "sgemm"]
    assert kernels_behind(finding(table="kernels", culprit="softmax")) == ["softmax"]
    assert kernels_behind(finding(table="kernels")) == ["softmax", "hgemm", "sgemm"]
