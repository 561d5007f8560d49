"""Every figure of tests/data/expected.json, through the public API, to the nanosecond."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from tests.analyses import NAMES, PARTS, analysed, sums
from tests.oracle.accounting import length, union
from tests.reports import DATA

EXPECTED: Final[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
COVERED: Final = {
    "devices",
    "gaps",
    "causes_ns",
    "induced_idle_ns_by_api",
    "unattributed_ops",
    "dominant_cause_counts",
    "phases_with_gpu_work",
}
"""The figures that the tests below check."""


every_report: Final = pytest.mark.parametrize("name", sorted(EXPECTED))


def test_every_expected_figure_has_a_test_and_a_report() -> None:
    assert set(EXPECTED) <= set(NAMES)
    assert all(set(figures) == COVERED for figures in EXPECTED.values())


@every_report
def test_the_window_of_each_device_has_the_expected_parts(name: str) -> None:
    columns = ["device", "window_ns", *PARTS, "ops"]
    rows = analysed(name).accounting.select(columns).to_dicts()
    assert {str(row.pop("device")): row for row in rows} == EXPECTED[name]["devices"]


@every_report
def test_idle_has_the_expected_causes(name: str) -> None:
    found = sums(analysed(name).accounting, [f"{cause}_ns" for cause in CAUSES])
    assert {column.removesuffix("_ns"): ns for column, ns in found.items()} == (
        EXPECTED[name]["causes_ns"]
    )


@every_report
def test_as_many_gaps_as_expected_have_each_dominant_cause(name: str) -> None:
    gaps = analysed(name).gaps
    assert len(gaps) == EXPECTED[name]["gaps"]
    counts = dict(gaps["cause"].cast(pl.String).value_counts().rows())
    assert counts == EXPECTED[name]["dominant_cause_counts"]


@every_report
def test_the_idle_behind_each_api_is_as_expected(name: str) -> None:
    induced = analysed(name).syncs.group_by("api").agg(pl.col("induced_idle_ns").sum())
    assert {api: ns for api, ns in induced.rows() if ns} == (
        EXPECTED[name]["induced_idle_ns_by_api"]
    )


@every_report
def test_phases_hold_the_expected_gpu_work(name: str) -> None:
    columns = ["ops", "kernels", "kernel_ns"]
    phases = analysed(name).phases.filter(pl.col("ops") > 0)
    of_all_processes = phases.group_by("path").agg(pl.col(columns).sum())
    found = {row.pop("path"): row for row in of_all_processes.to_dicts()}
    expected = EXPECTED[name]["phases_with_gpu_work"]
    assert found == {path: {c: of[c] for c in columns} for path, of in expected.items()}


@every_report
def test_a_phase_of_one_process_is_as_busy_as_expected(name: str) -> None:
    phases = analysed(name).phases.filter(pl.col("ops") > 0)
    alone = phases.filter(pl.col("path").is_unique())
    expected = EXPECTED[name]["phases_with_gpu_work"]
    assert dict(alone.select("path", "busy_ns").rows()) == {
        path: expected[path]["busy_ns"] for path in alone["path"]
    }


@every_report
def test_a_phase_of_several_processes_is_as_busy_as_expected(name: str) -> None:
    # If processes share a GPU, the figures count it once; our table has a row for each process.
    expected = EXPECTED[name]["phases_with_gpu_work"]
    by_path: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for path, device, start, end in placed_ops(name):
        by_path[path, device].append((start, end))
    busy: Counter[str] = Counter()
    for (path, _), spans in by_path.items():
        busy[path] += length(union(spans))
    assert busy == {path: of["busy_ns"] for path, of in expected.items()}
    summed = analysed(name).phases.group_by("path").agg(pl.col("busy_ns").sum())
    assert all(ns >= busy[path] for path, ns in summed.rows())


def placed_ops(name: str) -> Iterator[tuple[str, int, int, int]]:
    """Every operation, once for each path that contains it: path, device, start, end."""
    analysis = analysed(name)
    attribution, ops = analysis.timeline.attribution, analysis.timeline.ops
    up = {
        path: (parent, joined)
        for path, parent, joined in attribution.paths.select("path", "parent_path", "joined").rows()
    }
    rows = ops.select("device", "start_ns", "end_ns", attribution.path_of(ops["node"])).rows()
    for device, start, end, path in rows:
        while path is not None:
            path, joined = up[path]
            yield joined, device, start, end


@every_report
def test_as_many_operations_as_expected_are_in_no_phase(name: str) -> None:
    analysis = analysed(name)
    outermost = analysis.phases.filter(pl.col("depth") == 1)
    outside = sums(analysis.accounting, ["ops"])["ops"] - sums(outermost, ["ops"])["ops"]
    assert outside == EXPECTED[name]["unattributed_ops"]
    counts = dict(analysis.integrity.select("check", "count").rows())
    assert counts.get("unattributed operations", 0) == outside


# --- the figures that the project was asked for by number -----------------------------------------


def test_backward_of_h200_train_holds_all_its_kernels() -> None:
    phases = analysed("h200-train").phases
    backward = phases.filter(pl.col("path").str.ends_with("/backward"))
    assert len(backward) == 3
    assert sums(backward, ["kernels", "kernel_ns"]) == {"kernels": 812, "kernel_ns": 23_752_139}


def test_h200_train_is_idle_for_93_percent_of_its_window() -> None:
    (row,) = analysed("h200-train").accounting.to_dicts()
    assert (row["window_ns"], row["idle_ns"]) == (5_889_341_842, 5_474_050_777)


@pytest.mark.parametrize("table", ["accounting", "gaps", "steps", "phases"])
@every_report
def test_causes_sum_to_idle_exactly(name: str, table: str) -> None:
    frame: pl.DataFrame = getattr(analysed(name), table)
    idle = frame["duration_ns" if table == "gaps" else "idle_ns"]
    causes = frame.select(pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES)).to_series()
    assert causes.to_list() == idle.to_list()
