"""Ranks far from the others, and the typical one."""

from dataclasses import replace

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsysflow.analysis.ranks.outliers import PARTS
from nsysflow.analysis.ranks.ranks import Ranks
from tests.analyses import EXAMPLES
from tests.oracle.rank_bandwidth import outliers
from tests.runs_of_ranks import Step, digests_of

Parts = dict[str, list[int]]
"""Of each part of a step, its time in each step."""


def ranks_of(each: list[Parts]) -> Ranks:
    """Ranks that have steps, and nothing else."""
    steps: dict[tuple[int, int | None, int], list[Step]] = {
        (number, 10, 0): [(step, 0, 1) for step in range(len(own["step"]))]
        for number, own in enumerate(each)
    }
    digests = []
    for digest, own in zip(digests_of([], len(each), steps), each, strict=True):
        parts = {"duration_ns" if part == "step" else f"{part}_ns": ns for part, ns in own.items()}
        times = [pl.Series(name, ns, dtype=pl.Int64) for name, ns in parts.items()]
        digests.append(replace(digest, steps=digest.steps.with_columns(times)))
    return Ranks.of(digests)


def alike(count: int, **parts: int) -> list[Parts]:
    """Ranks with two steps of 1 ms, of which the last one differs."""
    usual = dict.fromkeys(PARTS, 0) | {"step": 1_000_000, "compute": 800_000, "idle": 200_000}
    return [
        {part: [ns, ns] for part, ns in (usual | (parts if last else {})).items()}
        for last in [False] * (count - 1) + [True]
    ]


STEP = st.fixed_dictionaries({part: st.sampled_from((0, 5, 90, 100, 400)) for part in PARTS})


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(STEP, min_size=1, max_size=3), min_size=1, max_size=6))
def test_outliers_agree_with_the_oracle(steps: list[list[dict[str, int]]]) -> None:
    each = [{part: [step[part] for step in own] for part in PARTS} for own in steps]
    found = ranks_of(each).rank_outliers.select("rank", "part", "ns", "median_ns", "z")
    expected = outliers(dict(enumerate(each)), list(PARTS))
    assert found.drop("z").to_dicts() == [
        {name: value for name, value in row.items() if name != "z"} for row in expected
    ]
    for z, row in zip(found["z"], expected, strict=True):
        assert (z is None) == (row["z"] is None)
        assert abs((z or 0) - (row["z"] or 0)) < 1e-9


def test_the_one_rank_that_computes_longer_is_an_outlier_though_all_others_are_equal() -> None:
    found = ranks_of(alike(8, compute=900_000, idle=100_000))
    assert found.rank_outliers.select("rank", "part", "ns", "median_ns", "z").rows() == [
        (7, "compute", 900_000, 800_000, None),
        (7, "idle", 100_000, 200_000, None),
    ]
    assert found.outlying == (7,)
    assert found.typical == 0


def test_less_than_a_hundredth_of_the_step_makes_no_outlier() -> None:
    assert ranks_of(alike(8, compute=809_999)).rank_outliers.is_empty()
    assert not ranks_of(alike(8, compute=810_000)).rank_outliers.is_empty()
