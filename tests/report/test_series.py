"""The series of report.json: what it lists, what it leaves out, and that it is read back whole."""

import json
from typing import Any

import polars as pl
import pytest

import nsysflow
from nsysflow.compare.captures import Capture, Key, Track
from nsysflow.compare.document import capture_of
from nsysflow.report.document import COMPARED, compared_json, report_json, series_json
from nsysflow.report.results import Results
from tests.analyses import analysed, any_trace, few_reports, run_of
from tests.oracle.model import PlainTrace, to_trace
from tests.report.handmade import training
from tests.tiny import Row, analysis_of, kernel, launch, opened

STEPS = 7


def steps(*rows: Row, phase: str = "work", name: str = "k") -> nsysflow.Analysis:
    """Steps of 1 ms with a kernel of 100 us each, from 0 to 7 ms; two are start-up."""
    found: list[Row] = [*rows]
    for number in range(STEPS):
        at = 1_000_000 * number
        found += [opened(at, at + 900_000, "step"), opened(at + 1, at + 800_000, phase)]
        found += [launch(at + 10, at + 20, number + 1)]
        found += [kernel(at + 50, at + 100_050, number + 1, name=name)]
    return analysis_of(*found)


def series(*analyses: nsysflow.Analysis) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(series_json(Results(analyses)))
    return found


def read(results: Results) -> Capture:
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
    assert track["steps"] == [2, 3, 4, 5, 6]
    assert track["kinds"] == ["steady"] * 5
    assert (track["process"], track["device"], track["step_name"]) == (1, 0, "step")
    assert track["duration_ns"] == [1_000_000] * 4 + [100_000]


def test_a_row_that_is_in_every_step_lists_only_its_figures() -> None:
    (row,) = rows_named(series(steps()), "k")
    assert row == {
        "part": "compute",
        "kind": "other",
        "name": row["name"],
        "grid": "1x1x1",
        "phase": "step/work",
        "ns": [100_000] * 5,
        "count": 1,
    }


def test_a_row_that_is_in_some_steps_says_in_which() -> None:
    extra = [
        kernel(at * 1_000_000 + 500_000, at * 1_000_000 + 500_010, None, name="extra")
        for at in (0, 3, 5, 5)
    ]
    document = series(steps(*extra))
    (row,) = rows_named(document, "extra")
    assert (row["at"], row["ns"], row["count"]) == ([1, 3], [10, 10], [1, 2])
    assert row["duration_ns"] == [10, 20]


def test_names_and_phases_are_any_text() -> None:
    name = 'void "λ"<\\n,\t>(ß*) \u2028 \U0001f680'
    phase = "Vorwärts „1“ \\ 'x'"
    analysis = steps(name=name, phase=phase)
    (row,) = rows_named(series(analysis), name)
    assert row["phase"] == f"step/{phase}"
    assert_read_back(analysis, list(read(Results([analysis])).tracks))


def test_each_name_is_listed_once() -> None:
    names = [each["name"] for each in series(analysed("h200-train"))["names"]]
    assert len(names) == len(set(names)) > 20


def test_each_rank_is_a_track() -> None:
    run = Results([analysed("h200-ddp-rank0"), analysed("h200-ddp-rank1")])
    capture = read(run)
    assert [track.report for track in capture.tracks] == ["h200-ddp-rank0", "h200-ddp-rank1"]
    assert capture.gpus == ["NVIDIA H200"] * 2
    for analysis, track in zip(run.analyses, capture.tracks, strict=True):
        assert isinstance(analysis, nsysflow.Analysis)
        assert_read_back(analysis, [track])


def test_a_gpu_without_steps_is_one_step_without_number() -> None:
    (track,) = series(analysis_of(kernel(0, 10, None), kernel(30, 50, None)))["tracks"]
    assert (track["steps"], track["kinds"], track["duration_ns"]) == ([None], [None], [50])
    assert (track["process"], track["step_name"]) == (None, None)


def test_without_gpu_work_there_is_no_track() -> None:
    assert series(analysis_of()) == {"unit": None, "names": [], "tracks": []}


def test_unit_is_the_arithmetic_of_most_matrix_time() -> None:
    half = kernel(200_000, 300_000, None, name="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n")
    single = kernel(400_000, 410_000, None, name="cutlass_80_simt_sgemm_64x64_8x5_tn_align1")
    assert series(analysis_of(half, single))["unit"] == "bf16"
    assert series(steps())["unit"] is None


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-ddp-rank0"])
def test_both_documents_have_the_same_series(name: str) -> None:
    short, whole = (json.loads(of(run_of(name))) for of in (compared_json, report_json))
    assert short["series"] == whole["series"]
    assert short["verdict"]["valid"] == whole["verdict"]["valid"]


def test_a_run_without_parts_of_steps_has_an_empty_series() -> None:
    assert json.loads(series_json(Results([training()])))["tracks"] == []
