"""What recording cost earlier programs, kept in the user's cache folder."""

from dataclasses import replace
from pathlib import Path

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.cli.profile import keep_cost_of
from nsysflow.record.doctor import _costs
from nsysflow.report.results import Results
from nsysflow.runs.analyze import with_run
from nsysflow.runs.cache import OFF, VARIABLE
from nsysflow.runs.costs import (
    MOST_KEPT,
    costs_file,
    forget_costs,
    keep_cost,
    kept_costs,
    usual_pct,
)
from nsysflow.runs.manifest import PlainRun
from tests.analyses import loaded
from tests.runs.runs import RUN


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE)


def test_costs_of_like_recordings_are_used_until_they_are_forgotten() -> None:
    for pct in (30, 41, 36):
        assert usual_pct(RUN) is None  # programs differ too much for one or two of them
        keep_cost(RUN, pct)
    assert usual_pct(RUN) == (25, 46)
    assert usual_pct(replace(RUN, gpus=("another",))) is None
    assert usual_pct(replace(RUN, backtraces="all")) is None
    assert with_run(RUN, Options()).recording_pct == (25, 46)


def test_the_command_of_a_run_is_that_of_the_advice_unless_it_is_a_workload() -> None:
    run = replace(RUN, workload=None, command=("python", "t.py"))
    assert with_run(run, Options()).command == ("python", "t.py")
    assert with_run(replace(run, workload="h2d"), Options()).command == ()
    forget_costs()
    assert usual_pct(RUN) is None


def test_the_last_costs_are_kept() -> None:
    for pct in range(MOST_KEPT + 5):
        keep_cost(RUN, pct)
    assert usual_pct(RUN) == (0, MOST_KEPT + 4 + 5)


def test_a_damaged_file_says_nothing_and_is_replaced() -> None:
    costs_file().parent.mkdir()
    costs_file().write_text("{")
    assert not kept_costs()
    keep_cost(RUN, 30)
    assert [*kept_costs().values()] == [(30,)]


@pytest.mark.parametrize(("plain_ms", "known"), [(7, True), (None, False)])
def test_a_plain_step_teaches_what_recording_costs(plain_ms: int | None, known: bool) -> None:
    plain_ns = None if plain_ms is None else plain_ms * 1_000_000
    report = loaded("launch_bound-eager-plain")
    results = Results([nsysflow.analyze(report, Options(unrecorded_step_ns=plain_ns))])
    keep_cost_of(replace(RUN, plain_run=PlainRun(step_ns=plain_ns)), results)
    assert bool(kept_costs()) == known


def test_nothing_is_kept_where_the_cache_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, OFF)
    keep_cost(RUN, 30)
    assert not costs_file().exists()


def test_doctor_says_what_is_known_and_how_many_runs_are_missing() -> None:
    few, enough = _costs({"one": (30,), "another": (30, 36, 41)})
    assert few.seen.startswith("known after 3 runs, 1 so far (one): until then plain steps are")
    assert enough.seen == "takes 25 to 46 % of the host's time, by 3 runs (another)"
    (none,) = _costs({})
    assert none.seen.startswith("not known here")
