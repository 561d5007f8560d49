"""`--figures` of `analyze` and `diff`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from tests.reports import SAMPLES

REPORT = str(SAMPLES / "nan_check-sync.sqlite.xz")
OTHER = str(SAMPLES / "nan_check-async.sqlite.xz")

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, words)


def test_analyze_prints_the_page_and_says_what_was_drawn_and_what_not(run: Run) -> None:
    ran = run("analyze", REPORT, "--no-files", "--figures", "figures")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("nan_check-sync · NVIDIA H200")
    assert ran.stderr.endswith(
        "wrote figures: breakdown, idle-over-steps, gap-histogram, phases, kernel-classes, as SVG"
        " and PNG\nnot drawn: ranks (no steps of several ranks)\n"
    )
    assert len([*Path("figures").iterdir()]) == 10


def test_diff_draws_the_bridge(run: Run) -> None:
    ran = run("diff", REPORT, OTHER, "--figures", "figures")
    assert ran.exit_code == 0
    assert ran.stderr.endswith("wrote figures: bridge, as SVG and PNG\n")
    assert sorted(each.name for each in Path("figures").iterdir()) == ["bridge.png", "bridge.svg"]


def test_a_comparison_over_time_has_no_bridge(run: Run) -> None:
    third = str(SAMPLES / "nan_check-sync-metrics.sqlite.xz")
    ran = run("diff", REPORT, OTHER, third, "--figures", "figures")
    assert ran.exit_code == 2
    assert "--figures shows two sides" in ran.stderr


@pytest.mark.parametrize("words", [("analyze", REPORT, "--no-files"), ("diff", REPORT, OTHER)])
def test_a_folder_that_cannot_take_them_is_refused_before_any_work(
    run: Run, words: tuple[str, ...]
) -> None:
    Path("figures").write_text("mine", encoding="utf-8")
    ran = run(*words, "--figures", "figures")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "is a file. Name a folder with --figures DIR" in ran.stderr


@pytest.mark.parametrize("words", [("analyze", REPORT, "--no-files"), ("diff", REPORT, OTHER)])
def test_without_matplotlib_the_error_says_what_to_install(
    run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.cli.figures.find_spec", lambda _name: None)
    ran = run(*words, "--figures", "figures")
    assert ran.exit_code == 1
    assert "pip install 'nsysflow[figures]'" in ran.stderr
    assert not Path("figures").exists()
