"""Tables as people read them: what `everything.txt` and `training.txt` do not show."""

import re
from dataclasses import replace

import polars as pl
import pytest

from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.analysis.tables.integrity import IMPACT
from nsysflow.analysis.tables.table import Table
from nsysflow.report.blocks import COMPUTED, block_of
from nsysflow.report.blocks.declared import DECLARED
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from nsysflow.report.ledger import ledger_sentence
from nsysflow.report.page import OF_RANKS, quality_lines, rows_shown
from nsysflow.report.results import Origin, sorted_by_rank
from nsysflow.report.results import Results as RealResults
from nsysflow.report.step_times import steps_sentence
from tests import tiny
from tests.analyses import analysed
from tests.analysis.findings.subjects import launched
from tests.in_us import call
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    Row,
    captured,
    device,
    found_of,
    frame,
    handmade,
    metrics,
    results,
    row,
    stepped,
    training,
    valued,
)
from tests.report.test_ranks import many
from tests.report.test_reviewed_pages import everything

SHOWN = [
    table for table in declarations(ABOUT) if rows_shown(table, "page") or rows_shown(table, "full")
]
EMPTY = results()


def shown(name: str, run: RealResults, rows: int = 50, at_least_ns: int = 0) -> Block:
    return block_of(name)(run, Limits(rows=rows, at_least_ns=at_least_ns))


def of_rows(name: str, *rows: Row, limit: int = 9, window: int = 100) -> Block:
    """The block of these rows, in a window of so many ms."""
    return shown(name, results(**{"accounting": [device(window * MS)], name: [*rows]}), limit)


def column(block: Block, head: str) -> list[str]:
    heads = [column.head for column in block.columns]
    return [row[heads.index(head)] for row in block.rows] if head in heads else []


def test_every_table_on_a_page_has_one_block_in_the_order_of_the_tables_and_no_other_has() -> None:
    assert sorted([*COMPUTED, *DECLARED]) == sorted(table.name for table in SHOWN)
    on_a_page = {table.name for table in declarations() if table.page_rows or table.full_rows}
    assert on_a_page == COMPUTED.keys() | DECLARED.keys()
    assert [*DECLARED] == [name for name in ABOUT if name in DECLARED]


@pytest.mark.parametrize("table", SHOWN, ids=lambda table: table.name)
def test_what_holds_for_every_block(table: Table) -> None:
    run = many() if table.name in OF_RANKS else everything()
    block, first = shown(table.name, run), shown(table.name, run, 1)
    assert {len(row) for row in block.rows} == {len(block.columns)}
    assert 1 <= len(block.title.split()) <= 6
    assert not block.caption.endswith(".")
    outside_ranges = 1 if table.name == "phases" else 0  # they are not one of the phases
    assert len(first.rows) == 1 + outside_ranges
    if len(block.rows) > 1 and table.name != "rank_steps":  # a picture of all rows
        assert re.fullmatch(rf"\d+ more: --table {table.name}", first.rest)
    assert block.rest == ""
    assert shown(table.name, EMPTY).rows == ()
    for head in ("GPU", "rank") if table.name not in OF_RANKS else ():
        assert all(re.fullmatch(r".+ GPU [01]", name) for name in column(block, head))


@pytest.mark.parametrize(
    ("host_ms", "share_pct", "rows"), [(50, 95.0, 1), (51, 95.0, 0), (50, 95.1, 0)]
)
def test_launching_code_is_shown_where_the_gpu_computes_for_several_lines(
    host_ms: int, share_pct: float, rows: int
) -> None:
    launched = row(source="a.py:2 in f", total_ms=2, kernel="k", kernel_pct=70.0)
    accounting = [device(100 * MS, host_ms=host_ms)]
    run = results(accounting=accounting, code=[launched | row(share_pct=share_pct)])
    assert len(shown("code", run).rows) == rows


TOKENIZE = row(phase="data", cause="host", function="tokenize", source="train.py:88 in collate")
UNKNOWN = row(phase="backward", cause="launch", function="(not sampled)", idle_ms=30)
LONG = row(part="longer", steps="3", count=1, time_ms=117, busy_ms=20, excess_ms=71) | row(
    cause="host", cause_ms=70, phase="step/data", source="a.py:3 in f"
)
WAIT = row(api="sync", kind="sync", source="a.py:1 in f", phase="step")
NCCL = row(name="nccl", operation="ncclAllReduce", busy_ms=4, count=10, hidden_pct=25)
FEW_ACTIVE = metrics("phase", "step", MS, bound="overhead", sm_active_pct=3.0)


@pytest.mark.parametrize(
    ("table", "rows", "head", "cells"),
    [
        ("accounting",  # in proportion
         [device(100 * MS, comm_exposed_ms=25, copy_exposed_ms=25, host_ms=25)],
         "", ["████████▓▓▓▓▓▓▓▒▒▒▒▒▒▒░░░░░░░░"]),
        # only where most of the kernel time has a line
        ("code", [row(source="a.py:2 in f", total_ms=2, share_pct=66.7, kernel_pct=70.0),
                  row(source=None, total_ms=1, share_pct=33.3, kernel_pct=70.0)],
         "line", ["a.py:2 in f", "(not known)"]),
        ("code", [row(source="a.py:2 in f", via="lib/models/t5.py:3 in forward", kernel_pct=70.0)],
         "line", ["t5.py:3 in forward, from a.py:2"]),
        ("code", [row(source="a.py:2 in f", waits=True, kernel_pct=70.0)],
         "line", ["a.py:2 in f: backward"]),
        ("code", [row(source="a.py:2 in f", backward=backward, kernel_pct=70.0)
                  for backward in (True, False)], "pass", ["backward", ""]),
        ("code", [row(source="a.py:2 in f", total_ms=1, share_pct=33.3),
                  row(source=None, total_ms=2, share_pct=66.7)], "line", []),
        # the most exposed first; bytes only where some are known
        ("comm", [NCCL | row(exposed_ms=1), NCCL | row(exposed_ms=3)],
         "exposed", ["3.00 ms", "1.00 ms"]),
        ("comm", [NCCL | row(bytes=None)], "bytes", []),
        # the most idle time behind it first, then the most exposed
        ("copies", [row(phase="a", exposed_ms=1), row(phase="b", exposed_ms=2),
                    row(phase="c", induced_idle_ms=1)], "phase", ["c", "b", "a"]),
        ("gap_summary", [row(cause="host", total_ms=1, phase="step", source="a.py:2 in f")],
         "line", ["before a.py:2"]),
        # of a GPU that idles between operations few SMs are no news
        ("gpu_metrics", [FEW_ACTIVE], "note", []),
        ("gpu_metrics", [FEW_ACTIVE | {"samples": 0, "sm_active_pct": None}], "name", []),
        # one row for the same code, whatever its cause and thread
        ("host_stacks", [TOKENIZE | row(idle_ms=10),
                         TOKENIZE | row(idle_ms=10, cause="launch", thread=7)],
         "idle", ["20.0 ms"]),
        ("host_stacks", [TOKENIZE | row(idle_ms=30),
                         TOKENIZE | row(idle_ms=10, function="collate")],
         "the host ran", ["tokenize in collate (train.py:88)", "collate (train.py:88)"]),
        ("host_stacks", [TOKENIZE | row(idle_ms=30), UNKNOWN], "share", ["50 %"]),
        ("integrity", [row(check="negative durations", count=2, share_pct=None, impact="dropped")],
         "share", []),
        ("kernels", [row(short_name=name, total_ns=ns) for name, ns in (("a", 1), ("b", 2))],
         "kernel", ["b", "a"]),
        ("phases", [row(path="a", depth=1, busy_ms=2, bound="blocking_copy+host"),
                    row(path="b", depth=1, busy_ms=1, bound="compute")],
         "bound", ["blocking copy, host", "compute", ""]),
        ("phases", [row(path="a", depth=1, idle_ms=3, launch_ms=2, host_ms=1)],
         "idle mostly", ["launch overhead", ""]),
        ("phases", [row(path="step", depth=1, busy_ms=1), row(path="x", depth=1, host_wall_ms=1)],
         "phase", ["step", "(outside ranges)"]),  # no GPU time in x
        ("run", [row(part="start-up", time_ms=1), row(part="typical", time_ms=2)], "time", []),
        ("run", [LONG, row(part="typical", time_ms=9, busy_ms=3, cause="host", cause_ms=2)],
         "waits mostly for", ["host code 70.0 ms in step/data, a.py:3 in f", "host code 2.00 ms"]),
        ("run", [LONG | row(phase=None, source=None)],
         "waits mostly for", ["host code 70.0 ms in (outside ranges)"]),
        ("run", [LONG, LONG | row(part="recurring", count=5, every=10),
                 LONG | row(part="loop", count=3, phase="validate"), LONG | row(part="between")],
         "", ["1 longer step", "5 pauses every 10 steps", "validate, 3 steps", "between loops"]),
        # calls of one name, line and phase are one row
        ("syncs", [WAIT | row(induced_idle_ms=1, blocked_ms=2)] * 3, "idle behind it", ["3.00 ms"]),
        ("syncs", [WAIT | row(induced_idle_ms=1, blocked_ms=2)] * 3, "calls", ["3"]),
        # next to no idle time behind it, and not the longest
        ("syncs", [WAIT | row(induced_idle_ms=10, blocked_ms=90),
                   WAIT | row(api="small", induced_idle_ms=0.5)], "call", ["sync"]),
        ("syncs", [WAIT | row(blocked_ms=0.3)], "call", []),  # short, though the longest
    ],
)  # fmt: skip
def test_a_column_has_these_cells(table: str, rows: list[Row], head: str, cells: list[str]) -> None:
    assert column(of_rows(table, *rows), head) == cells


@pytest.mark.parametrize(
    ("busy_ms", "said"),
    [
        (60, "where the host was"),
        (120, "where the host was: 120 ms in 100 ms, as work of several phases runs at once"),
    ],
)
def test_phases_whose_work_overlaps_say_so(busy_ms: int, said: str) -> None:
    assert of_rows("phases", row(path="a", depth=1, busy_ms=busy_ms)).caption.endswith(said)


def test_a_fourth_cause_of_idle_time_is_only_hinted_at_and_without_any_there_is_no_line() -> None:
    causes = row(host_ms=4, launch_ms=3, sync_ms=2, api_ms=1)
    (line,) = shown("accounting", results(accounting=[device(100 * MS, **causes)])).more
    assert line.endswith("waiting in a sync 2.00 ms 2.0 %, …")
    assert shown("accounting", results(accounting=[device(100 * MS)])).more == ()


def test_the_rows_left_out_are_the_next_of_the_table_that_the_block_names() -> None:
    run = Results([analysed("h200-train")])
    table = sorted_by_rank(run.table("gap_summary"), "gap_summary")
    few, more = shown("gap_summary", run, 3), shown("gap_summary", run, 5)
    assert few.rows == more.rows[:3]
    assert few.rest == f"{table.height - 3} more: --table gap_summary"
    assert column(more, "gaps") == [f"{count:,}" for count in table["gaps"].head(5)]


@pytest.mark.parametrize(
    ("stacks", "rest"),
    [
        ([TOKENIZE | row(idle_ms=10)], ""),
        ([TOKENIZE | row(idle_ms=10), UNKNOWN], "; 75 % not sampled"),
        ([TOKENIZE | row(idle_ms=30, samples=None), UNKNOWN | row(samples=None)],
         "; 50 % outside operators"),
    ],
)  # fmt: skip
def test_host_code_that_is_not_known_is_in_the_caption(stacks: list[Row], rest: str) -> None:
    assert of_rows("host_stacks", *stacks).caption == f"What ran while the GPU waited{rest}"


def test_waits_for_the_lock_that_are_estimated_are_called_so() -> None:
    held = {"gil_ns": MS, "share_pct": 13.3, "estimated": True, "holder": 7, "phase": ""}
    assert of_rows("gil", held).caption == (
        "The launching thread seems to wait for Python's lock in 13 % of the idle time of host code"
        " and launches; estimated, profile --gil measures it"
    )


@pytest.mark.parametrize(
    ("share_pct", "estimated", "rows"), [(4.9, True, 0), (5.0, True, 1), (0.1, False, 1)]
)
def test_an_estimate_of_next_to_nothing_is_not_on_the_short_page(
    share_pct: float, rows: int, *, estimated: bool
) -> None:
    held = {"gil_ns": 1, "share_pct": share_pct, "estimated": estimated, "holder": 7, "phase": ""}
    assert len(of_rows("gil", held, limit=3).rows) == rows
    assert len(of_rows("gil", held, limit=999).rows) == 1


def test_host_code_that_costs_next_to_nothing_is_on_the_long_page_only() -> None:
    both = TOKENIZE | row(idle_ms=1), TOKENIZE | row(function="pad", idle_ms=0.3)
    few, all_of_them = (of_rows("host_stacks", *both, limit=rows, window=10) for rows in (3, 20))
    assert (len(few.rows), few.rest) == (1, "1 more: --table host_stacks")
    assert len(all_of_them.rows) == 2


def test_on_one_screen_a_check_of_the_recording_is_a_line() -> None:
    found = [row(check=check, count=1_360, share_pct=20.0) for check in IMPACT]
    lines = quality_lines(results(integrity=found))
    assert [line.startswith("1,360 ") for line in lines] == [True] * len(IMPACT)
    one = row(check="unattributed operations", count=1, share_pct=None)
    assert quality_lines(results(integrity=[one])) == ("1 operation belongs to no phase",)


def test_a_check_that_several_reports_fail_is_one_line_with_a_name() -> None:
    check = {"check": "unattributed operations", "share_pct": None}
    runs = (
        Handmade({"integrity": frame("integrity", row(report=name, count=count, **check))})
        for name, count in (("rank0", 64), ("rank1", 96))
    )
    assert quality_lines(Results([*runs])) == (
        "rank1 and 1 more: 96 operations belong to no phase",
    )


@pytest.mark.parametrize(
    ("total_ms", "line"),
    [
        ({}, ()),
        ({"matmul": 0}, ()),
        ({"norm": 5, "matmul": 15}, ("███████████████▓▓▓▓▓ matmul 75 %, norm 25 %",)),
        ({"matmul": 50, "norm": 20, "softmax": 15, "copy": 5, "other": 10},
         ("██████████▓▓▓▓▒▒▒░░░ matmul 50 %, norm 20 %, softmax 15 %, other 15 %",)),
    ],
)  # fmt: skip
def test_classes_of_kernels_have_a_bar(total_ms: dict[str, int], line: tuple[str, ...]) -> None:
    rows = [row(total_ms=ms) | {"class": name} for name, ms in total_ms.items()]
    assert of_rows("kernels", *rows).more == tuple(f"by class: {each}" for each in line)


def ranks(*collectives: pl.DataFrame) -> Block:
    """Of ranks with these communication kernels."""
    tables = handmade(accounting=[device(9 * MS)]).tables
    runs = [Handmade(tables=tables | {"collectives": rows}) for rows in collectives]
    return shown("ranks", Results(runs))


def test_the_caption_says_how_far_the_ranks_collectives_agree() -> None:
    ddp = [analysed(f"h200-ddp-rank{number}") for number in (0, 1)]
    assert shown("ranks", Results(ddp)).caption == (
        "Clocks aligned by the ends of 30 collectives: they agree to 9.70 us (median),"
        " 28.4 us (worst)"
    )
    reduce, gather = (pl.lit(f"ncclDevKernel_{name}") for name in ("AllReduce", "AllGather"))
    first, second = (rank.collectives.with_columns(name=reduce) for rank in ddp)
    assert ranks(first).rows == ()
    more = ranks(first, pl.concat([second, second[:3].with_columns(name=gather)])).caption
    others = "; the others are not of all ranks, or end at different times"
    assert more == ranks(first, second).caption + others
    fewer = ranks(first[:-4], second)
    assert "stragglers cannot be determined" in fewer.caption
    assert sorted(row[1:] for row in fewer.rows) == [("0 of 26",), ("0 of 30",)]


class PartlyJudged(Handmade):
    """`training`, of which the second step is judged."""

    @property
    def judged(self) -> Handmade:
        rows = self.tables["steps"].filter(pl.col("step") == 1)
        tables = self.tables | {"steps": rows}
        return replace(training(), tables=tables, step_counts={("run.sqlite", 0): 1})

    @property
    def run_steps(self) -> Handmade:
        return stepped()


def steady(step_ms: float, steps: int = 5, process: int = 7, name: str = "step") -> Handmade:
    """Steps of one process, all steady."""
    rows = [row(step=at, process=process, duration_ms=step_ms, steady=True) for at in range(steps)]
    return handmade(step_name=name, steps=rows)


TRAINER = captured(steady(14.0, steps=10), (7, 12 * MS))


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([handmade()], ""),
        ([steady(5.5, steps=1)], "step 5.50 ms"),
        ([PartlyJudged(**vars(training()))], "step 50.0 ms, mean of 2, typically 40.0 ms"),
        # the slowest rank
        ([steady(5.0), steady(7.0, process=8)], "step 7.00 ms, mean of 5"),
        ([captured(steady(5.5), (7, 4_500_000))],
         "step 5.50 ms, mean of 5 (before the window 4.50 ms)"),
        ([captured(steady(5.5), (7, None))], "step 5.50 ms, mean of 5"),
        ([captured(steady(5.5), (8, 4 * MS))], "step 5.50 ms, mean of 5"),  # of another process
        # the median of what they measured
        ([captured(steady(5.5, process=pid), (pid, ms * MS)) for pid, ms in ((7, 4), (9, 5))],
         "step 5.50 ms, mean of 5 (before the window 4.50 ms)"),
        # a trainer and a server in one report: no number is of both
        ([TRAINER, steady(0.5, steps=200, process=8, name="generate")],
         "step 14.0 ms, mean of 10 (before the window 12.0 ms); generate 500 us, mean of 200"),
    ],
)  # fmt: skip
def test_the_steps_of_each_range_are_a_sentence(runs: list[Handmade], sentence: str) -> None:
    assert steps_sentence(Results(runs)) == sentence


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        (Origin(plain_step_ns=13 * MS, later_step_ns=11 * MS), "(plain 13.0 ms)"),
        (Origin(later_step_ns=11 * MS), "(after the recording 11.0 ms)"),
    ],
)
def test_the_best_step_not_recorded_stands_beside(origin: Origin, sentence: str) -> None:
    assert steps_sentence(Results([TRAINER], origin=origin)).endswith(f"mean of 10 {sentence}")
    server = steady(0.5, steps=200, process=8, name="generate")
    both = steps_sentence(Results([TRAINER, server], origin=origin))
    assert "(before the window 12.0 ms); generate 500 us" in both  # it may be of either


def test_the_line_of_long_steps_is_that_of_their_finding_even_if_that_is_on_some_of_them() -> None:
    about: Row = {"table": "run", "steps": 2, "source": "b.py:7 in save", "process": 0, "device": 0}
    named = valued(5 * MS, rule="longer-steps", **about)
    steps = [row(part="typical", steps="0", count=9, time_ms=90), LONG | row(phase=None, count=5)]
    tables = training().tables | {"run": frame("run", *steps)}
    for found, line in ((found_of(named), "b.py:7"), (found_of(), "a.py:3")):
        run = replace(training(), found=found, tables=tables)
        assert f"5 longer steps 117 ms (57 %, {line})" in ledger_sentence(Results([run]))


def test_the_longest_wait_is_shown_although_no_idle_time_is_behind_it() -> None:
    some = [row(api=f"call{at}", kind="sync", blocked_ms=1, induced_idle_ms=1) for at in range(9)]
    block = of_rows("syncs", *some, row(api="cudaDeviceSynchronize", blocked_ms=211), limit=4)
    assert column(block, "blocked") == ["1.00 ms"] * 3 + ["211 ms"]
    assert block.rest == "6 more: --table syncs"


@pytest.mark.parametrize("apis", [("cudaMalloc", "cudaFree"), ("cudaFree", "cudaFree")])
def test_what_all_allocations_save_is_not_said_to_be_of_one_row(apis: tuple[str, str]) -> None:
    rows: list[tiny.Row] = []
    for i in range(16):
        start = 200 * i
        rows += launched(start, 20)
        rows.append(call(start + 40, start + 100 + 20 * (i % 2), apis[i % 2]))
    block = shown("syncs", RealResults([tiny.analysis_of(*rows)]))
    assert len([each for each in column(block, "alone") if each]) == 1
    named = "(cudaFree: without all calls for memory)" in block.caption
    assert named == (len({*apis}) == 2)
