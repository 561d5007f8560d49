"""The captured workloads: the tool names what is wrong before, and is quiet after."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.analyze import Analysis

ROOT: Final = Path(__file__).parent.parent
SCREENS: Final = ROOT / "docs" / "screens.md"
SHOWN: Final = re.compile(r"^```console\n\$ nsysflow (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

STEADY: Final = 1
"""The first captured step holds what starting the profiler costs (docs/facts.md)."""

LABELS: Final = {
    "pageable": "pageable_blocking",
    "pinned_blocking": "pinned_blocking",
    "pageable_non_blocking": "pageable_async",
    "pinned": "pinned_async",
}


@cache
def analysed(name: str) -> Analysis:
    return nsysflow.analyze(nsysflow.load(ROOT / "samples" / f"{name}.sqlite.xz"))


def share_of_step(name: str, cause: str) -> float:
    """How much of the steps after the first one a cause takes, without the last one, which no
    step follows."""
    steps = analysed(name).steps.sort("step")[STEADY:-1]
    return int(steps[f"{cause}_ns"].sum()) / int(steps["duration_ns"].sum())


def top_sync(name: str) -> dict[str, Any]:
    return analysed(name).syncs.row(0, named=True)


@pytest.mark.parametrize(
    ("pair", "cause", "line"),
    [
        ("nan_check", "sync", r"nan_check\.py:\d+ in check"),
        ("dataload", "sync", r"dataload\.py:\d+ in step"),
    ],
)
def test_the_wait_is_named_before_and_gone_after(pair: str, cause: str, line: str) -> None:
    before = f"{pair}-sync"
    assert share_of_step(before, cause) >= 0.05
    steps = analysed(before).steps.sort("step")[STEADY:-1]
    others = [int(steps[f"{name}_ns"].sum()) for name in ("host", "launch", "api", "dispatch")]
    assert int(steps[f"{cause}_ns"].sum()) > max(others)
    assert top_sync(before)["phase"] == "step/metrics"
    assert re.fullmatch(line, top_sync(before)["source"])
    assert share_of_step(f"{pair}-async", cause) < 0.01


def test_each_way_to_copy_has_its_label() -> None:
    for variant, label in LABELS.items():
        copies = analysed(f"h2d-{variant}").copies.filter(pl.col("phase") == "step/h2d")
        assert copies["copy_label"].to_list() == [label], variant
    blocked = share_of_step("h2d-pageable", "blocking_copy")
    assert blocked >= 0.05
    assert share_of_step("h2d-pinned", "blocking_copy") < 0.01


def test_a_starved_window_is_found_and_its_graph_takes_no_longer_than_estimated() -> None:
    assert share_of_step("launch_bound-eager", "launch") >= 0.05
    eager, graph = analysed("launch_bound-eager"), analysed("launch_bound-graph")
    assert eager.starved["phase"].unique().to_list() == ["step/forward"]
    assert graph.starved.is_empty()
    forward = pl.col("path") == "step/forward"
    estimate_ns = eager.phases.filter(forward)["graph_estimate_ns"].item()
    assert graph.phases.filter(forward)["span_ns"].item() <= estimate_ns
    assert estimate_ns < eager.phases.filter(forward)["span_ns"].item()


@pytest.mark.parametrize(
    ("control", "at_most"), [("benign_sync-sync", 0.05), ("deep_queue-queued", 0.01)]
)
def test_a_control_is_idle_for_next_to_nothing(control: str, at_most: float) -> None:
    gpu = analysed(control).accounting.row(0, named=True)
    assert 0 < gpu["idle_ns"] < at_most * gpu["window_ns"]


@pytest.mark.slow
def test_the_screens_are_what_is_printed() -> None:
    blocks = SHOWN.findall(SCREENS.read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    for words, shown in blocks:
        program = "from nsysflow.cli import main; main(prog_name='nsysflow')"
        argv = [sys.executable, "-P", "-c", program, *words.split()]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
        lines = [line.rstrip() for line in done.stdout.rstrip().split("\n")]
        assert shown.rstrip().split("\n") == lines, words
