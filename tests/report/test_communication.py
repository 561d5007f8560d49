"""The blocks on communication: exposed first, ranks apart, the late one on top."""

from dataclasses import replace

import polars as pl

import nsysflow
from nsysflow.report.communication import communication, ranks
from nsysflow.report.results import Results
from tests.analyses import analysed
from tests.report.handmade import MS, device, handmade, results


def group(exposed_ns: int, busy_ns: int, **columns: object) -> dict[str, object]:
    """A row of comm."""
    hidden_pct = 100 * (busy_ns - exposed_ns) / busy_ns
    of = {"exposed_ns": exposed_ns, "busy_ns": busy_ns, "hidden_pct": hidden_pct, "count": 10}
    return {"name": "ncclDevKernel_X", "operation": "ncclAllReduce", "bytes": None, **of, **columns}


def ddp() -> list[nsysflow.Analysis]:
    return [analysed(f"h200-ddp-rank{number}") for number in (0, 1)]


def test_what_is_exposed_longest_comes_first() -> None:
    block = communication(
        results(
            accounting=[device(100 * MS)],
            comm=[
                group(1 * MS, 9 * MS, phase="step/backward"),
                group(3 * MS, 4 * MS, phase="step/sync"),
                group(0, 2 * MS, phase=""),
            ],
        ),
        limit=2,
    )
    assert [row[:4] for row in block.rows] == [
        ("3.00 ms", "25.0 %", "4.00 ms", "10"),
        ("1.00 ms", "88.9 %", "9.00 ms", "10"),
    ]
    assert block.more == ("1 more: --table comm",)


def test_bytes_have_a_column_only_where_some_are_known() -> None:
    unknown, known = (
        communication(results(comm=[group(1 * MS, 2 * MS, bytes=size)]), limit=5)
        for size in (None, 64_000_000)
    )
    assert "bytes" not in [column.head for column in unknown.columns]
    assert "bytes" in [column.head for column in known.columns]
    assert any("64" in cell for cell in known.rows[0])


def test_a_run_without_communication_has_neither_block() -> None:
    found = results(accounting=[device(100 * MS)])
    assert communication(found, limit=5).rows == ranks(found, limit=5).rows == ()


def test_ranks_have_rows_of_their_own_in_both_blocks() -> None:
    both = Results(ddp())
    gpus = [row[0] for row in communication(both, limit=5).rows]
    assert gpus == ["h200-ddp-rank1 GPU 1", "h200-ddp-rank0 GPU 0"]
    assert [row[0] for row in ranks(both, limit=5).rows] == gpus[::-1]


def test_the_late_rank_and_how_well_the_clocks_agree_are_told() -> None:
    block = ranks(Results(ddp()), limit=5)
    assert block.caption.startswith("Clocks aligned by the ends of 30 collectives, which agree")
    assert block.more == (
        "furthest apart: ncclAllReduce 0, 36.7 ms from the first to h200-ddp-rank0 GPU 0:"
        " --table arrivals",
    )


def test_ranks_that_did_nothing_equally_often_are_told_so_with_their_numbers() -> None:
    all_reduces = [
        each.collectives.with_columns(name=pl.lit("ncclDevKernel_AllReduce")) for each in ddp()
    ]
    few, many = (
        replace(handmade(accounting=[device(9 * MS)]), collectives=rows)
        for rows in (all_reduces[0][:-1], all_reduces[1])
    )
    block = ranks(Results([few, many]), limit=5)
    assert "nobody can be called late" in block.caption
    assert sorted(row[1:] for row in block.rows) == [("0 of 29",), ("0 of 30",)]


def test_that_some_are_not_of_all_ranks_is_told_beside_those_that_are() -> None:
    whole = [
        each.collectives.with_columns(name=pl.lit("ncclDevKernel_AllReduce")) for each in ddp()
    ]
    alone = whole[1][:3].with_columns(name=pl.lit("ncclDevKernel_AllGather"))
    captions = [
        ranks(
            Results(
                [
                    replace(handmade(accounting=[device(9 * MS)]), collectives=rows)
                    for rows in (whole[0], pl.concat([whole[1], *more]))
                ]
            ),
            limit=5,
        ).caption
        for more in ([], [alone])
    ]
    assert "not of all ranks" not in captions[0]
    assert captions[1] == captions[0] + "; the others are not of all ranks, or end apart"


def test_one_rank_alone_has_no_block_of_ranks() -> None:
    assert ranks(Results(ddp()[:1]), limit=5).rows == ()


def test_the_tables_of_a_run_are_of_all_its_reports() -> None:
    both = Results(ddp())
    assert both.table("arrivals").height == 30
    assert both.table("ranks")["report"].to_list() == ["h200-ddp-rank0", "h200-ddp-rank1"]
    assert Results([handmade()]).table("ranks").is_empty()
