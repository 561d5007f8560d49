"""The part `judged` of report.json."""

import json
from typing import Any

import pytest

from nsysflow.report.document import report_json
from nsysflow.report.results import Results
from tests import tiny
from tests.analyses import run_of

PARTS = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")


def judged(name: str) -> dict[str, Any]:
    """It, of a real report."""
    found: dict[str, Any] = json.loads(report_json(run_of(name)))["judged"]
    return found


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-train", "synthetic-1"])
def test_the_parts_of_a_gpu_sum_to_its_window_and_causes_to_its_idle_time(name: str) -> None:
    for device in judged(name)["devices"]:
        assert sum(device[part] for part in PARTS) == device["window_ns"]
        assert sum(device["causes"].values()) == device["idle_ns"]


def test_the_windows_of_the_judged_steps_are_their_durations() -> None:
    document = json.loads(report_json(run_of("nan_check-sync")))
    steady = [row for row in document["steps"]["rows"] if row["steady"]]
    (device,) = document["judged"]["devices"]
    assert document["judged"]["of_steps"]
    assert device["steps"] == document["judged"]["steps"] == len(steady)
    assert device["window_ns"] == sum(row["duration_ns"] for row in steady)
    assert document["judged"]["step_ns"] == round(device["window_ns"] / len(steady))


def test_outer_phases_sum_to_the_window() -> None:
    found = judged("nan_check-sync")
    outer = [phase for phase in found["phases"] if len(phase["names"]) == 1]
    assert sum(phase["time_ns"] for phase in outer) == found["window_ns"]
    assert all(phase["time_ns"] == phase["busy_ns"] + phase["idle_ns"] for phase in found["phases"])


def test_without_steps_the_whole_window_is_judged() -> None:
    rows = tiny.launch(0, 5, 1), tiny.kernel(10, 20, 1), tiny.launch(30, 35, 2)
    analysis = tiny.analysis_of(*rows, tiny.kernel(40, 50, 2))
    document = json.loads(report_json(Results([analysis])))
    assert not document["judged"]["of_steps"]
    assert document["judged"]["steps"] == 1
    whole = [{**device, "steps": 1} for device in document["devices"]]
    assert document["judged"]["devices"] == whole
