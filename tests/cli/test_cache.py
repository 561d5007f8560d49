"""`nsysflow cache`, and `--no-cache`."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from nsysflow.runs.cache import VARIABLE
from tests.reports import sqlite_report
from tests.runs.keeping import kept_in, load


def run(*words: str) -> Result:
    done = CliRunner().invoke(main, [*words])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report; what is loaded is kept from now on."""
    kept_in(tmp_path / "cache", monkeypatch)
    return sqlite_report(tmp_path)


def test_it_lists_what_is_kept_by_the_report_that_it_is_of(report: Path) -> None:
    load(report)
    first, head, row = run("cache").stdout.splitlines()
    assert "cache: 1 kept (" in first
    assert head.split() == ["size", "last", "used", "what"]
    assert row.endswith(report.name)


def test_of_many_it_lists_those_used_last_and_sums_up_the_others(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.cli.cache._SHOWN", 1)
    other = report.with_name("other.sqlite")
    other.write_bytes(report.read_bytes())
    load(report)
    load(other)
    *_, row, rest = run("cache").stdout.splitlines()
    assert row.endswith(("other.sqlite", report.name))
    assert rest.startswith("longer unused: 1 kept (")


def test_prune_keeps_what_is_of_use_and_clear_does_not(report: Path) -> None:
    load(report)
    assert run("cache", "--prune").stdout.startswith("removed 0 from ")
    assert run("cache", "--clear").stdout.startswith("removed 1 from ")
    assert "cache: 0 kept (0)" in run("cache").stdout


def test_prune_and_clear_are_not_asked_for_together() -> None:
    done = CliRunner().invoke(main, ["cache", "--prune", "--clear"])
    assert done.exit_code == 2
    assert "cannot be combined" in done.stderr


def test_it_says_that_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert run("cache").stdout == "nothing is kept: NSYSFLOW_CACHE is off\n"


def test_no_cache_keeps_nothing_and_holds_for_one_command(report: Path) -> None:
    before = os.environ[VARIABLE]
    run("analyze", str(report), "--no-files", "--no-cache")
    assert os.environ[VARIABLE] == before
    assert "cache: 0 kept" in run("cache").stdout


def test_a_settings_file_may_switch_it_off(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(report.parent)
    (report.parent / "nsysflow.toml").write_text("[analyze]\nno-cache = true\n")
    run("analyze", str(report), "--no-files")
    run("explain", "1", str(report))
    assert "cache: 0 kept" in run("cache").stdout
