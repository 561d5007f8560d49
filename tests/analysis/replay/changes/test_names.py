"""What a change names must be in the report; else the nearest names are proposed."""

import polars as pl
import pytest

from nsysflow.analysis.replay.changes.declared import MOST_PRINTED, Changes
from nsysflow.base.errors import UnknownName
from tests.analyses import analysed
from tests.analysis.replay.replays import replayed, without

TIMELINE = analysed("nan_check-sync").timeline


@pytest.mark.parametrize(
    ("changes", "near"),
    [
        (without("sync", "nan_check.py:124"), "nan_check.py:125"),
        (without("all", "step/metric"), "step/metrics"),
        (Changes(graphs=("foward",)), "forward"),
        (Changes(faster_host=(("dta", 0.5),)), "data"),
        (Changes(scaled=(("reduce_kernels", 0.5),)), "reduce_kernel"),
    ],
)
def test_the_nearest_names_are_proposed(changes: Changes, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        replayed(TIMELINE, changes)
    assert caught.value.exit_code == 2
    assert near in caught.value.advice


def test_where_nothing_is_near_the_names_that_are_there_are_listed() -> None:
    with pytest.raises(UnknownName, match=r"There are:.*step"):
        replayed(TIMELINE, Changes(graphs=("xyz123",)))


def test_calls_that_are_not_there_are_counted() -> None:
    with pytest.raises(UnknownName, match="1 of 1 calls are not in"):
        replayed(TIMELINE, Changes(removed_calls=((1, 2, 3),)))


def window_end(changes: Changes) -> int:
    return int(replayed(TIMELINE, changes).ops.select(pl.max("end_ns")).item())


def test_a_wait_is_found_by_its_line_its_frame_its_phase_and_the_phase_around_it() -> None:
    places = ("nan_check.py:125", "nan_check.py:125 in check", "metrics", "step/metrics", "step")
    found = {window_end(without("sync", place)) for place in places}
    assert len(found) == 1
    assert found != {window_end(Changes())}


def test_a_wait_outside_the_place_stays() -> None:
    assert window_end(without("sync", "data")) == window_end(Changes())


def test_of_several_factors_of_one_kernel_the_smallest_counts() -> None:
    names = TIMELINE.ops.filter(pl.col("short_name") == "reduce_kernel")["name"].cast(pl.String)
    both = Changes(scaled=(("reduce_kernel", 0.5), *((name, 0.25) for name in names.unique())))
    quarter = Changes(scaled=(("reduce_kernel", 0.25),))
    assert replayed(TIMELINE, both).ops.equals(replayed(TIMELINE, quarter).ops)


def test_only_the_first_kernels_of_many_are_printed() -> None:
    scaled = tuple((f"kernel_{number}", 0.5) for number in range(9))
    assert [*Changes(scaled=scaled).options()][1::2] == [
        f"kernel_{number}=0.5" for number in range(MOST_PRINTED)
    ]
