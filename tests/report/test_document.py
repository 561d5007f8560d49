import json
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import declarations
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.compare.captures import Capture, Key, Track
from nsysflow.compare.document import capture_of
from nsysflow.report.document import DEAREST, compared_json, report_json, series_json
from nsysflow.report.results import Results as RealResults
from nsysflow.report.step_times import COMPARED, steps_sentence
from tests.analyses import PARTS, analysed, any_trace, few_reports, loaded, run_of
from tests.analysis.steps.programs import trace_of_program, training_step
from tests.oracle.model import PlainTrace, to_trace
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
from tests.report.test_ranks import run_with
from tests.tiny import Row, analysis_of, kernel, launch, opened


def document(*analyses: nsysflow.Analysis | Handmade) -> Any:
    """report.json of a run."""
    return json.loads(report_json(Results(analyses)))


def test_its_last_keys_are_the_declared_tables_in_their_order() -> None:
    declared = [table.json_key for table in declarations() if table.json_key is not None]
    assert [*document(training())][-len(declared) :] == declared


def test_a_plain_step_is_estimated_where_none_was_timed() -> None:
    found = document(analysed("nan_check-sync"))["time"]
    assert found["plain_step_ns"] is None
    assert found["plain_low_ns"] < found["plain_high_ns"] < found["step_ns"]
    timed = nsysflow.analyze(loaded("nan_check-sync"), Options(unrecorded_step_ns=MS))
    assert document(timed)["time"]["plain_estimate"] is None


@pytest.mark.parametrize(
    ("table", "number", "cost"),
    [("rank_steps", "rank", "cost_ns"), ("syncs", "start_ns", "induced_idle_ns")],
)
def test_of_many_rows_those_that_cost_most_are_in_it_in_their_order(
    table: str, number: str, cost: str
) -> None:
    numbers = range(DEAREST + 5)
    rows = [{number: each, cost: 1 + each % 7 if each > 4 else 0} for each in numbers]
    if table == "rank_steps":
        rows = [{**row, "duration_ns": MS} for row in rows]
    tables: dict[str, Any] = {table: rows}
    found = json.loads(report_json(run_with(**tables)))[table]
    assert [row[number] for row in found] == [*numbers][5:]


def test_the_steps_carry_what_each_process_says_of_its_window() -> None:
    steps = document(captured(training(), (7, 36 * MS), (9, 38 * MS), (11, None)))["steps"]
    assert steps["unprofiled_step_ns"] == 37 * MS
    each = [(row["process"], row["unprofiled_step_ns"]) for row in steps["captures"]]
    assert each == [(7, 36 * MS), (9, 38 * MS), (11, None)]


def test_what_is_not_a_number_is_null_and_an_empty_report_a_document_too() -> None:
    rows = [{"check": "x", "share_pct": float("nan")}]
    text = report_json(results(integrity=rows, accounting=[{"copy_hidden_pct": float("inf")}]))
    assert not re.search(r"\b(NaN|Infinity)\b", text)
    found = json.loads(text)
    assert found["integrity"][0]["share_pct"] is found["devices"][0]["copy_hidden_pct"] is None
    assert found["phases"] == []


def test_the_verdict_names_the_place_of_the_first_finding() -> None:
    run = replace(training(), found=found_of(valued(phase="step/loss", source="a.py:3 in f")))
    verdict = document(run)["verdict"]
    assert (verdict["phase"], verdict["source"]) == ("step/loss", "a.py:3 in f")


def test_the_verdict_of_an_invalid_recording_has_its_reason() -> None:
    failed = FailedCheck(check=Check.UNSTAMPED, count=1, of=9)
    found = document(replace(training(), failed_checks=(failed,)))["verdict"]
    assert (found["valid"], found["why"], found["bound"]) == (False, "unstamped-operations", None)
    assert found["text"].startswith("Incomplete capture: 1 of 9 operations")


def judged(name: str) -> dict[str, Any]:
    """What is judged of a real report; the parts of each GPU make up its window."""
    found: dict[str, Any] = json.loads(report_json(run_of(name)))
    for device in found["judged"]["devices"]:
        assert sum(device[part] for part in PARTS) == device["window_ns"]
        assert sum(device["causes"].values()) == device["idle_ns"]
    return found


def test_the_parts_of_several_gpus_sum_up_to_their_windows() -> None:
    assert len(judged("synthetic-1")["judged"]["devices"]) == 2


def test_outer_phases_and_steps_sum_up_to_what_is_judged() -> None:
    whole = judged("nan_check-sync")
    found = whole["judged"]
    (device,) = found["devices"]
    outer = [phase["time_ns"] for phase in found["phases"] if len(phase["names"]) == 1]
    lengths = [row["duration_ns"] for row in whole["steps"]["rows"] if row["steady"]]
    assert sum(outer) == sum(lengths) == device["window_ns"] == found["window_ns"]
    assert found["of_steps"]
    assert device["steps"] == found["steps"] == len(lengths)
    assert found["step_ns"] == round(sum(lengths) / len(lengths))


def test_without_steps_the_whole_window_is_judged() -> None:
    rows = launch(0, 5, 1), kernel(10, 20, 1), launch(30, 35, 2), kernel(40, 50, 2)
    whole = document(analysis_of(*rows))
    judged = whole["judged"]
    assert (judged["of_steps"], judged["steps"]) == (False, 1)
    assert judged["devices"] == [{**device, "steps": 1} for device in whole["devices"]]


def steps(*rows: Row, phase: str = "work", name: str = "k") -> nsysflow.Analysis:
    """Steps of 1 ms with a kernel of 100 us each, from 0 to 7 ms; two are start-up."""
    found: list[Row] = [*rows]
    for number in range(7):
        at = 1_000_000 * number
        found += [opened(at, at + 900_000, "step"), opened(at + 1, at + 800_000, phase)]
        found += [launch(at + 10, at + 20, number + 1)]
        found += [kernel(at + 50, at + 100_050, number + 1, name=name)]
    return analysis_of(*found)


def series(*analyses: nsysflow.Analysis) -> Any:
    return json.loads(series_json(Results(analyses)))


def read(results: RealResults) -> Capture:
    return capture_of(compared_json(results).encode(), "run", "report.json")


def rows_named(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The rows of the first track whose name is `name`."""
    number = [each["name"] for each in document["names"]].index(name)
    return [row for row in document["tracks"][0]["rows"] if row["name"] == number]


def assert_read_back(analysis: nsysflow.Analysis, tracks: list[Track]) -> None:
    """What is read is what the table of step parts has of the compared steps."""
    key = ["process", "device", "step"]
    kinds = analysis.steps.select(*key, pl.col("kind").cast(str).alias("kind_of_step"))
    rows = analysis.step_parts.join(kinds, on=key, how="left")
    compared = pl.col("step").is_null() | pl.col("kind_of_step").is_in(COMPARED)
    expected: dict[Any, int] = {}
    for row in rows.filter(compared).iter_rows(named=True):
        words: dict[str, Any] = {name: row[name] or "" for name in Key.__dataclass_fields__}
        what = Key(**words)
        expected[row["process"], row["device"], row["step"], what] = row["ns"]
    found = {
        (track.process, track.device, step, Key.of(row)): row.ns[at]
        for track in tracks
        for row in track.rows
        for at, step in enumerate(track.steps)
        if row.count[at] or row.ns[at]
    }
    assert found == expected


@any_trace
def test_the_series_of_any_trace_is_read_back_whole(model: PlainTrace) -> None:
    analysis = nsysflow.analyze(to_trace(model))
    if series(analysis)["tracks"]:
        assert_read_back(analysis, list(read(Results([analysis])).tracks))


@few_reports
def test_the_series_of_a_real_report_is_read_back_whole(name: str) -> None:
    assert_read_back(analysed(name), list(read(run_of(name)).tracks))


def test_start_up_is_left_out() -> None:
    (track,) = series(steps())["tracks"]
    assert track["steps"] == [2, 3, 4, 5]  # nor is the last one in it, which lacks its tail
    assert track["kinds"] == ["steady"] * 4
    assert (track["process"], track["device"], track["step_name"]) == (1, 0, "step")
    assert track["duration_ns"] == [1_000_000] * 4


def test_a_row_that_is_in_every_step_lists_only_its_figures() -> None:
    (row,) = rows_named(series(steps()), "k")
    about = {"part": "compute", "kind": "other", "name": row["name"], "grid": "1x1x1"}
    assert row == about | {"phase": "step/work", "ns": [100_000] * 4, "count": 1}


def test_a_row_that_is_in_some_steps_says_in_which() -> None:
    starts = (at * 1_000_000 + 500_000 for at in (0, 3, 5, 5))
    extra = [kernel(start, start + 10, None, name="extra") for start in starts]
    (row,) = rows_named(series(steps(*extra)), "extra")
    assert (row["at"], row["ns"], row["count"]) == ([1, 3], [10, 10], [1, 2])
    assert row["duration_ns"] == [10, 20]


def test_names_and_phases_are_any_text() -> None:
    name = 'void "λ"<\\n,\t>(ß*) \u2028 \U0001f680'
    phase = "Vorwärts „1“ \\ 'x'"
    analysis = steps(name=name, phase=phase)
    (row,) = rows_named(series(analysis), name)
    assert row["phase"] == f"step/{phase}"
    assert_read_back(analysis, list(read(Results([analysis])).tracks))


def test_each_rank_is_a_track() -> None:
    run = Results([analysed("h200-ddp-rank0"), analysed("h200-ddp-rank1")])
    capture = read(run)
    assert [track.report for track in capture.tracks] == [*run.reports]
    assert capture.gpus == ["NVIDIA H200"] * 2
    for analysis, track in zip(run.analyses, capture.tracks, strict=True):
        assert isinstance(analysis, nsysflow.Analysis)
        assert_read_back(analysis, [track])


def test_unit_is_the_arithmetic_of_most_matrix_time() -> None:
    half = kernel(200_000, 300_000, None, name="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n")
    single = kernel(400_000, 410_000, None, name="cutlass_80_simt_sgemm_64x64_8x5_tn_align1")
    assert series(analysis_of(half, single))["unit"] == "bf16"
    assert series(steps())["unit"] is None


def test_the_document_for_a_comparison_has_the_same_series() -> None:
    run = run_of("nan_check-sync")
    short, whole = (json.loads(made(run)) for made in (compared_json, report_json))
    assert short["series"] == whole["series"]
    assert short["verdict"]["valid"] == whole["verdict"]["valid"]


def test_inferred_steps_are_said_to_be_inferred() -> None:
    found = nsysflow.analyze(to_trace(trace_of_program(training_step() * 8)))
    steps = document(found)["steps"]
    assert (steps["inferred"], steps["name"], len(steps["rows"])) == (True, "step", 8)
    assert all(row["inferred"] for row in steps["rows"])
    assert steps_sentence(Results([found])).endswith("; steps inferred from repeating kernels")
    assert document(analysed("nan_check-sync"))["steps"]["inferred"] is False
