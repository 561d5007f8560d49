"""The reports of a run become results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from nsysflow.analysis.options import Options
from nsysflow.report.results import Origin
from nsysflow.runs.analyze import analyze_reports, origin_of
from nsysflow.runs.manifest import write_manifest
from nsysflow.runs.sources import Source
from tests.runs.runs import RUN


@pytest.mark.parametrize(("on", "on_cpu"), [("cpu", True), ("cuda", False)])
def test_results_say_that_a_run_had_no_gpu(
    tmp_path: Path, on: Literal["cpu", "cuda"], on_cpu: bool
) -> None:
    event = {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 7, "tid": 7}
    document = {"schemaVersion": 1, "traceEvents": [{**event, "ts": 1, "dur": 2}]}
    report = tmp_path / "report.pt.trace.json"
    report.write_text(json.dumps(document))
    write_manifest(tmp_path, replace(RUN, on=on, reports=(report.name,)))
    results = analyze_reports([tmp_path], Options())
    assert results.origin.on_cpu == on_cpu
    assert any("--on cpu" in note.text for note in results.notes) == on_cpu
    assert not analyze_reports([report], Options()).origin.on_cpu


def test_manifests_say_where_reports_come_from() -> None:
    path = Path("run/report.sqlite")
    source = Source(path=path, name="run", manifest=replace(RUN, versions={"driver": "580.65"}))
    assert origin_of([source], [Path("run")]) == Origin(
        paths={"run": path},
        typed=(Path("run"),),
        versions={"driver": "580.65"},
        started=RUN.started,
    )
    ranks = [replace(source, name=name, manifest=replace(RUN, reports=("a", "b"))) for name in "ab"]
    assert origin_of(ranks, []).ranks
    assert origin_of([replace(source, manifest=replace(RUN, processes=1))], []).ranks
    assert not origin_of([*ranks, source], []).ranks
    assert not origin_of([*ranks, replace(source, manifest=None)], []).ranks


def test_without_a_manifest_nothing_is_known_of_versions_and_time() -> None:
    origin = origin_of([Source(path=Path("a.sqlite"), name="a", manifest=None)], [])
    assert (origin.versions, origin.started, origin.on_cpu) == ({}, "", False)
