import os
from pathlib import Path

import pytest

from nsysflow.runs.cache import VARIABLE
from tests.cli.running import refused, run
from tests.reports import sqlite_report
from tests.runs.keeping import kept_in


def print_page(report: Path) -> None:
    run("analyze", report, "--no-files")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report; every answer on it is kept from now on."""
    kept_in(tmp_path / "cache", monkeypatch)
    return sqlite_report(tmp_path, "nan_check-sync")


def test_it_lists_what_was_used_last_and_sums_up_the_others(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_page(report)
    first, head, row = run("cache").stdout.splitlines()
    assert "cache: 1 kept (" in first
    assert head.split() == ["size", "last", "used", "what"]
    assert row.endswith(report.name)
    monkeypatch.setattr("nsysflow.cli.cache._SHOWN", 1)
    print_page(report.rename(report.with_name("other.sqlite")))  # another page
    print_page(sqlite_report(report.parent, "nan_check-async"))
    *_, row, rest = run("cache").stdout.splitlines()
    assert row.endswith(".sqlite")
    assert rest.startswith("longer unused: 2 kept (")


def test_prune_keeps_what_is_of_use_and_clear_does_not(report: Path) -> None:
    print_page(report)
    assert "cannot be combined" in refused("cache", "--prune", "--clear")
    assert run("cache", "--prune").stdout.startswith("removed 0 from ")
    assert run("cache", "--clear").stdout.startswith("removed 1 from ")
    assert "cache: 0 kept (0)" in run("cache").stdout


def test_it_says_that_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert run("cache").stdout == "nothing is kept: NSYSFLOW_CACHE is off\n"


def test_no_cache_keeps_nothing_and_holds_for_one_command_or_in_a_settings_file(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ[VARIABLE]
    run("analyze", report, "--no-files", "--no-cache")
    assert os.environ[VARIABLE] == before
    monkeypatch.chdir(report.parent)
    Path("nsysflow.toml").write_text("[analyze]\nno-cache = true\n")
    run("analyze", report, "--no-files")
    run("explain", "1", report)
    assert "cache: 0 kept" in run("cache").stdout
