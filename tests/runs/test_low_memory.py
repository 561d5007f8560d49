"""Analysed from disk, a report gives the same files, byte for byte."""

from pathlib import Path

import pytest

from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.runs import analyze as module
from nsysflow.runs.analyze import PAGE, analyze_reports
from nsysflow.runs.files import write_folder
from tests.reports import sqlite_report


@pytest.mark.parametrize("name", ["h200-ddp-rank0", "nan_check-sync", "h200-graph-level"])
def test_every_file_is_the_same_from_disk(
    name: str, tmp_path: Path, fast_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = sqlite_report(tmp_path, name)
    written = {}
    for low_memory in (False, True):
        scratch = Scratch(fast_disk, least_bytes=1, slice_rows=300) if low_memory else None
        monkeypatch.setattr(module, "scratch_for", lambda *_, of=scratch, **__: of)
        results = analyze_reports([report], Options(), tables=(*ABOUT, *PAGE))
        assert (results.analyses[0].trace.scratch is not None) == low_memory
        folder = tmp_path / f"out-{low_memory}"
        write_folder(results, folder, top=None, at_least_ns=0, html=True)
        written[low_memory] = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert written[True] == written[False]
