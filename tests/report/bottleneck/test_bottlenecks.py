"""The rows of the bottlenecks."""

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.report.bottleneck.bottlenecks import BOTTLENECKS


def test_every_cause_and_exposed_part_is_in_exactly_one_bottleneck() -> None:
    columns = [column for each in BOTTLENECKS for column in each.columns]
    causes = [f"{cause}_ns" for cause in CAUSES]
    assert sorted(columns) == sorted([*causes, "comm_exposed_ns", "copy_exposed_ns"])


def test_each_has_a_kind_of_its_own() -> None:
    assert len({each.kind for each in BOTTLENECKS}) == len(BOTTLENECKS)
