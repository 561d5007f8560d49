"""The ranks: the straggler first."""

from dataclasses import replace

import polars as pl

import nsysflow
from nsysflow.report.blocks.ranks import block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.analyses import analysed
from tests.report.handmade import MS, Handmade, Results, device, handmade, two_ranks


def ranks(*runs: nsysflow.Analysis | Handmade) -> Block:
    return block(Results(runs), Limits(rows=5))


def ddp() -> list[nsysflow.Analysis]:
    return [analysed(f"h200-ddp-rank{number}") for number in (0, 1)]


def with_collectives(rows: pl.DataFrame) -> Handmade:
    return replace(handmade(accounting=[device(9 * MS)]), collectives=rows)


def all_reduces() -> list[pl.DataFrame]:
    """The collectives of both ranks, as if all were of one kind."""
    name = pl.lit("ncclDevKernel_AllReduce").alias("name")
    return [each.collectives.with_columns(name) for each in ddp()]


def test_the_rank_that_comes_late_is_first_and_the_other_waits_for_it() -> None:
    block = ranks(*two_ranks())
    assert [row[:4] for row in block.rows] == [
        ("rank1 GPU 1", "3.00 ms", "1", "0"),
        ("rank0 GPU 0", "0", "0", "3.00 ms"),
    ]


def test_the_caption_says_how_well_the_clocks_agree_and_a_line_which_skew_is_largest() -> None:
    block = ranks(*ddp())
    assert block.caption == (
        "Clocks aligned by the ends of 30 collectives: they agree to 9.70 us (median),"
        " 28.4 us (worst)"
    )
    assert block.more == (
        "largest skew: ncclAllReduce 0, 36.7 ms from the first rank to h200-ddp-rank0 GPU 0:"
        " --table arrivals",
    )


def test_ranks_with_different_counts_have_no_straggler_but_their_counts() -> None:
    first, second = all_reduces()
    block = ranks(with_collectives(first[:-1]), with_collectives(second))
    assert "stragglers cannot be determined" in block.caption
    assert sorted(row[1:] for row in block.rows) == [("0 of 29",), ("0 of 30",)]


def test_the_caption_says_that_some_collectives_are_not_of_all_ranks() -> None:
    first, second = all_reduces()
    alone = second[:3].with_columns(name=pl.lit("ncclDevKernel_AllGather"))
    captions = [
        ranks(with_collectives(first), with_collectives(pl.concat([second, *more]))).caption
        for more in ([], [alone])
    ]
    assert captions[1] == captions[0] + (
        "; the others are not of all ranks, or end at different times"
    )


def test_one_rank_alone_has_no_rows() -> None:
    assert ranks(*ddp()[:1]).rows == ()
