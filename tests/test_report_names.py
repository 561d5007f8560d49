"""What reports are called."""

from pathlib import Path

import pytest

from nsysflow.report_names import distinct_names, has_rank, without_rank


@pytest.mark.parametrize(
    ("name", "common"),
    [("ddp-rank0", "ddp"), ("run_rank_12.sqlite", "run.sqlite"), ("Rank3-a", "-a")],
)
def test_ranks_of_a_run_have_a_name_in_common(name: str, common: str) -> None:
    assert has_rank(name)
    assert without_rank(name) == common


def test_a_name_without_a_rank_stays() -> None:
    assert not has_rank("frank-train")
    assert without_rank("frank-train") == "frank-train"


def test_nothing_has_no_names() -> None:
    assert distinct_names([], []) == []


def test_names_of_one_file_stay_as_they_are_where_nothing_tells_them_apart() -> None:
    same = [Path("/a/x.sqlite")] * 2
    assert len(set(distinct_names(["x", "x"], same))) == 1
