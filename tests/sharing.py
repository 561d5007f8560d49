"""Commands in this process that share analyses: what differs between them is what they print."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nsysflow
import nsysflow.runs.library  # now: what it imports is replaced for commands
from nsysflow.analysis import analyze as analysis
from nsysflow.analysis.options import Options
from nsysflow.report.results import Results
from nsysflow.runs import analyze as running
from nsysflow.runs import loading
from nsysflow.runs.sources import Source
from tests.reports import SQLITE_REPORTS


@contextmanager
def shared_analyses(*more: Path) -> Iterator[None]:
    """Within this, each real report and each of `more` is analysed once for the same options,
    by whatever path. Other reports are analysed each time; commands parse, print and replay each
    time."""
    ours = {path.resolve() for path in (*SQLITE_REPORTS, *more)}
    real_load, real_load_named = loading.load, running._load
    real_analyze, real_run = analysis.analyze, running.analyze_reports
    traces: dict[tuple[object, ...], nsysflow.Trace] = {}
    analyses: dict[tuple[int, Options | None], nsysflow.Analysis] = {}
    runs: dict[tuple[object, ...], Results] = {}

    def load(path: str | Path, **asked: Any) -> nsysflow.Trace:
        if Path(path).resolve() not in ours:
            return real_load(path, **asked)
        key = Path(path).resolve(), *sorted(asked.items())
        if key not in traces:
            traces[key] = real_load(path, **asked)
        return traces[key]

    def load_named(source: Source, **asked: Any) -> nsysflow.Trace:
        if source.manifest is not None or source.path.resolve() not in ours:
            return real_load_named(source, **asked)
        key = source.path.resolve(), source.name, *sorted(asked.items())
        if key not in traces:
            traces[key] = real_load_named(source, **asked)
        return traces[key]

    def analyze(trace: nsysflow.Trace, options: Options | None = None) -> nsysflow.Analysis:
        if not any(trace is one for one in traces.values()):
            return real_analyze(trace, options)
        key = id(trace), options
        if key not in analyses:
            analyses[key] = real_analyze(trace, options)
        return analyses[key]

    def analyze_reports(paths: Sequence[Path], options: Options, **asked: Any) -> Results:
        if not all(path.resolve() in ours for path in paths):
            return real_run(paths, options, **asked)
        key = *paths, Path.cwd(), options
        if key not in runs:
            runs[key] = real_run(paths, options, **asked)
        return runs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load", load)
        patch.setattr(running, "_load", load_named)
        patch.setattr(running, "analyze", analyze)
        patch.setattr(analysis, "analyze", analyze)
        patch.setattr(running, "analyze_reports", analyze_reports)
        yield
