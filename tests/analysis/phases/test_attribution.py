"""Stacks of range instances as one tree of paths."""

import polars as pl

from nsysflow.analysis.phases.attribution import Attribution
from tests.tiny import Row, kernel, launch, opened, timeline_of

TWICE: tuple[Row, ...] = (
    opened(0, 90, "step"),
    opened(10, 40, "load"),
    opened(50, 80, "forward"),
    opened(100, 190, "step"),
    opened(110, 140, "load"),
    launch(20, 21, 1),
    launch(60, 61, 2),
    launch(120, 121, 3),
    kernel(22, 23, 1),
    kernel(62, 63, 2),
    kernel(122, 123, 3),
)


def attribution() -> Attribution:
    return timeline_of(*TWICE).attribution


def test_instances_of_equal_names_are_one_path_and_siblings_are_in_order_of_appearance() -> None:
    paths = attribution().paths.sort("key")
    assert paths["joined"].to_list() == ["step", "step/load", "step/forward"]
    assert paths["depth"].to_list() == [1, 2, 2]


def test_everything_nested_in_an_instance_is_within_it() -> None:
    found = attribution()
    process = found.nodes["process"][0]
    step = found.paths.filter(pl.col("joined") == "step").select(
        pl.lit(process).alias("process"), "path"
    )
    inside = found.within(step)
    assert len(inside) == len(found.nodes)
    assert inside["range"].n_unique() == 2


def test_rows_are_summed_up_the_tree() -> None:
    found = attribution()
    ops = timeline_of(*TWICE).ops
    rows = pl.DataFrame({"path": found.path_of(ops["node"]), "ns": ops["end_ns"] - ops["start_ns"]})
    joined = found.paths["joined"]
    sums = {
        joined[path]: ns
        for level in found.levels(rows)
        for path, ns in level.group_by("path").agg(pl.col("ns").sum()).rows()
    }
    assert sums == {"step/load": 2, "step/forward": 1, "step": 3}
