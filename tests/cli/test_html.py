"""`nsysflow analyze --html`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from tests.reports import SAMPLES

REPORT = str(SAMPLES / "h2d-pinned.sqlite.xz")


def test_html_writes_the_page_beside_the_other_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["analyze", REPORT, "--html", "-o", str(out)])
    assert done.exit_code == 0
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"wrote {out}: report.html, summary.md" in done.stderr


def test_a_page_of_an_earlier_analysis_goes_with_its_tables(tmp_path: Path) -> None:
    words = ["analyze", REPORT, "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(main, [*words, "--html"]).exit_code == 0
    assert CliRunner().invoke(main, words).exit_code == 0
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "instead"),
    [(["--no-files"], "leave out --no-files"), (["--table", "gaps"], "name a folder with -o DIR")],
)
def test_html_without_files_says_what_to_type(words: list[str], instead: str) -> None:
    done = CliRunner().invoke(main, ["analyze", REPORT, "--html", *words])
    assert done.exit_code == 2
    assert instead in " ".join(done.stderr.split())
