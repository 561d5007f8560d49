"""report.json."""

import json
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.declared.tables import DECLARED
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.compare.document import SCHEMA_VERSION
from nsysflow.report.document import DEAREST, report_json
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    captured,
    found_of,
    results,
    training,
    valued,
)
from tests.report.test_ranks import run_of

KEYS = [
    "schema", "tool", "report", "verdict", "judged", "findings", "devices", "kernels", "waited",
    "gap_summary", "gap_histogram", "phases", "host_stacks", "syncs", "step_groups", "steps",
    "series", "starved", "launches", "copies", "mfu", "comm", "ranks", "rank_groups",
    "arrivals", "rank_steps", "rank_outliers", "bandwidth", "gpu_metrics",
    "integrity",
]  # fmt: skip


def document() -> dict[str, Any]:
    """report.json of the hand-made training run."""
    found: dict[str, Any] = json.loads(report_json(Results([training()])))
    return found


def test_the_keys_are_those_of_the_declared_tables_in_their_order() -> None:
    assert list(document()) == KEYS
    declared = [table.json_key for table in DECLARED if table.json_key is not None]
    assert KEYS[-len(declared) :] == declared


def test_the_document_says_of_which_kind_it_is() -> None:
    about = document()
    assert about["schema"] == SCHEMA_VERSION
    assert about["tool"]["name"] == "nsysflow"
    assert about["findings"] == []


def test_the_reports_notes_and_selection_are_in_it() -> None:
    run = replace(training(), options=Options(steps=(StepPart(2),)))
    about = json.loads(report_json(Results([run])))["report"]
    assert about["reports"] == [{"report": "run.sqlite", "source": "by hand"}]
    assert about["selection"] == "--steps 2:"
    assert about["notes"] == [{"kind": "run", "text": "12 ranges of NCCL are not phases"}]


@pytest.mark.parametrize("key", ["gpu_metrics", "mfu", "arrivals", "ranks"])
def test_a_table_without_rows_is_an_empty_list(key: str) -> None:
    assert document()[key] == []


def test_the_document_is_the_same_every_time() -> None:
    assert report_json(Results([training()])) == report_json(Results([training()]))


@pytest.mark.parametrize(
    "name", ["syncs", "starved", "kernels", "launches", "copies", "gap_summary", "gap_histogram"]
)
def test_the_documents_rows_are_the_tables(name: str) -> None:
    table = Results([training()]).table(name)
    again = pl.DataFrame(document()[name], schema=table.schema)
    assert again.equals(table)


def test_of_many_steps_those_that_cost_most_are_in_it_in_their_order() -> None:
    ranks = range(DEAREST + 5)
    rows = [
        {"rank": rank, "step": 0, "duration_ns": MS, "cost_ns": 1 + rank % 7 if rank > 4 else 0}
        for rank in ranks
    ]
    found = json.loads(report_json(run_of(rank_steps=rows)))["rank_steps"]
    assert [row["rank"] for row in found] == [*ranks][5:]


def test_a_devices_causes_are_named_as_causes() -> None:
    (found,) = document()["devices"]
    assert list(found["causes"]) == list(CAUSES)
    assert sum(found["causes"].values()) == found["idle_ns"]


def test_a_phase_lists_its_names() -> None:
    assert [row["names"] for row in document()["phases"]] == [
        ["step"],
        ["step", "forward"],
        ["step", "loss"],
    ]


def test_the_steps_carry_the_name_of_their_range() -> None:
    assert document()["steps"]["name"] == "step"
    assert [row["step"] for row in document()["steps"]["rows"]] == [0, 1]
    assert document()["steps"]["unprofiled_step_ns"] is None
    assert document()["steps"]["captures"] == []


def test_the_steps_carry_what_each_process_says_of_its_window() -> None:
    run = captured(training(), (7, 36 * MS), (9, 38 * MS), (11, None))
    steps = json.loads(report_json(Results([run])))["steps"]
    assert steps["unprofiled_step_ns"] == 37 * MS
    assert [(row["process"], row["unprofiled_step_ns"]) for row in steps["captures"]] == [
        (7, 36 * MS),
        (9, 38 * MS),
        (11, None),
    ]


def test_nothing_in_the_document_is_not_a_number() -> None:
    rows = [{"check": "x", "share_pct": float("nan")}]
    text = report_json(results(integrity=rows, accounting=[{"copy_hidden_pct": float("inf")}]))
    assert not re.search(r"\b(NaN|Infinity)\b", text)
    json.loads(text)


def test_an_empty_report_is_a_document_too() -> None:
    assert json.loads(report_json(Results([Handmade(tables={})])))["phases"] == []


def test_the_verdict_of_a_valid_recording_has_its_bound() -> None:
    found = document()["verdict"]
    assert list(found) == ["valid", "why", "bound", "bound_pct", "phase", "source", "text"]
    assert (found["valid"], found["why"]) == (True, None)
    assert (found["bound"], found["bound_pct"]) == ("compute", 49.0)
    assert (
        found["text"] == "compute-bound (49 %, mostly matmul); largest loss: host and launch, 42 %"
    )
    assert (found["phase"], found["source"]) == (None, None)


def test_the_verdict_names_the_place_of_the_first_finding() -> None:
    run = replace(training(), found=found_of(valued(phase="step/loss", source="a.py:3 in f")))
    verdict = json.loads(report_json(Results([run])))["verdict"]
    assert (verdict["phase"], verdict["source"]) == ("step/loss", "a.py:3 in f")


def test_the_verdict_of_an_invalid_recording_has_its_reason() -> None:
    failed = FailedCheck(check=Check.UNSTAMPED, count=1, of=9)
    run = replace(training(), failed_checks=(failed,))
    found = json.loads(report_json(Results([run])))["verdict"]
    assert (found["valid"], found["why"], found["bound"]) == (False, "unstamped-operations", None)
    assert found["text"].startswith("Incomplete capture: 1 of 9 operations")
