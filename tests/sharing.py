"""Commands in this process that share analyses: what differs between them is what they print."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import nsysflow
import nsysflow.runs.library  # now: what it imports is replaced for commands
from nsysflow.analysis import analyze as analysis
from nsysflow.analysis.options import Options
from nsysflow.report.results import Results
from nsysflow.runs import analyze as running
from nsysflow.runs import questions, sources
from nsysflow.runs.sources import Source
from tests.reports import SAMPLES, SQLITE_REPORTS

Key = tuple[object, ...]

_TRACES: Final[dict[Key, nsysflow.Trace]] = {}
_ANALYSES: Final[dict[tuple[int, Options | None], nsysflow.Analysis]] = {}
_RUNS: Final[dict[Key, Results]] = {}


@cache
def _contents() -> set[bytes]:
    """What the real reports hold, packed."""
    return {path.read_bytes() for path in (*SQLITE_REPORTS, *SAMPLES.glob("runs/*.xz"))}


@contextmanager
def shared_analyses(*more: Path) -> Iterator[None]:
    """Within this, each real report or copy of it, and each of `more`, is analysed once in a
    process for the same options and name, by whatever path. Other reports are analysed each time;
    commands parse, print and replay each time."""
    also = {path.resolve() for path in more}
    real_load, real_load_named = sources.load, running._load
    real_analyze, real_run = analysis.analyze, running.analyze_reports

    def content(path: str | Path) -> bytes | None:
        """What the report holds, if it is one that is analysed once."""
        path = Path(path)
        if not path.is_file() or (path.suffix != ".xz" and path.resolve() not in also):
            return None
        held = path.read_bytes()
        return held if path.resolve() in also or held in _contents() else None

    def load(path: str | Path, **asked: Any) -> nsysflow.Trace:
        if (held := content(path)) is None:
            return real_load(path, **asked)
        key = held, Path(path).name, *sorted(asked.items())
        if key not in _TRACES:
            _TRACES[key] = real_load(path, **asked)
        return _TRACES[key]

    def load_named(source: Source, **asked: Any) -> nsysflow.Trace:
        if source.manifest is not None or (held := content(source.path)) is None:
            return real_load_named(source, **asked)
        key = held, source.path.name, source.name, *sorted(asked.items())
        if key not in _TRACES:
            _TRACES[key] = real_load_named(source, **asked)
        return _TRACES[key]

    def analyze(trace: nsysflow.Trace, options: Options | None = None) -> nsysflow.Analysis:
        if not any(trace is one for one in _TRACES.values()):
            return real_analyze(trace, options)
        key = id(trace), options
        if key not in _ANALYSES:
            _ANALYSES[key] = real_analyze(trace, options)
        return _ANALYSES[key]

    def analyze_reports(paths: Sequence[Path], options: Options, **asked: Any) -> Results:
        held = [content(path) for path in paths]
        if None in held:
            return real_run(paths, options, **asked)
        key = *held, *paths, Path.cwd(), options
        if key not in _RUNS:
            _RUNS[key] = real_run(paths, options, **asked)
        return _RUNS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "load", load)
        patch.setattr(running, "_load", load_named)
        patch.setattr(running, "analyze", analyze)
        patch.setattr(analysis, "analyze", analyze)
        patch.setattr(running, "analyze_reports", analyze_reports)
        patch.setattr(questions, "load", load)
        patch.setattr(questions, "analyze", analyze)
        patch.setattr(questions, "analyze_reports", analyze_reports)
        yield
