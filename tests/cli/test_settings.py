import re
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from nsysflow.base.errors import SettingsError
from nsysflow.cli.main import SUMMARIES
from nsysflow.cli.options import seconds
from nsysflow.cli.settings import COMMANDS, configured, settings_of
from tests.cli.running import parsed, refused, run

Given = Callable[..., Result]
"""Writes nsysflow.toml, and runs `analyze` below with the words typed."""


@click.command(cls=configured(), name="analyze")
@click.option("--top", type=click.IntRange(min=1))
@click.option("--share", type=float)
@click.option("--min-gap-us", "at_least")
@click.option("--from", "from_ns", callback=seconds)
@click.option("--form", type=click.Choice(["csv", "md"]))
@click.option("--domain", multiple=True)
@click.option("-o", "--output", type=click.Path())
@click.option("--include", type=click.Path(), multiple=True)
@click.option("--nsys", type=click.Path())
@click.option("--force", is_flag=True)
@click.option("--no-files", is_flag=True)
def analyze(**typed: object) -> None:
    click.echo({name: value for name, value in typed.items() if value not in (None, (), False)})


KNOWN = {
    word.lstrip("-"): each
    for each in analyze.params
    for word in each.opts
    if isinstance(each, click.Option)
}


@pytest.fixture
def given(here: Path) -> Given:
    def run(text: str, *words: str) -> Result:
        (here / "nsysflow.toml").write_text(text)
        return CliRunner().invoke(analyze, words)

    return run


def refusal(done: Result) -> str:
    """The message of the SettingsError that ended a run."""
    assert isinstance(done.exception, SettingsError), done.output
    return str(done.exception)


def test_a_file_gives_options_of_every_kind(given: Given) -> None:
    text = (
        "[analyze]\ntop = 3\nshare = 1\nmin-gap-us = 1.5\nfrom = 2\nform = 'md'\n"
        "domain = ['a', '-b']\nforce = true\nno-files = false\n"
    )
    seen = {"top": 3, "share": 1.0, "at_least": "1.5", "from_ns": 2_000_000_000}
    seen |= {"form": "md", "domain": ("a", "-b"), "force": True}
    assert literal_eval(given(text).output) == seen


BOTH_FLAGS = "force = true\nno-files = true"


@pytest.mark.parametrize(
    ("text", "words", "seen"),
    [
        ("top = 3", "--top 9", {"top": 9}),
        ("domain = 'a'", "", {"domain": ("a",)}),
        ("include = '/b'", "", {"include": ("/b",)}),
        ("min_gap_us = 7", "", {"at_least": "7"}),
        ("nsys = 'nsys-2025'", "", {"nsys": "nsys-2025"}),  # a bare name is left to PATH
        (BOTH_FLAGS, "--no-force", {"no_files": True}),
        (BOTH_FLAGS, "--files", {"force": True}),
        (BOTH_FLAGS, "--no-force --force --files", {"force": True}),
    ],
)
def test_typed_values_win(given: Given, text: str, words: str, seen: dict[str, object]) -> None:
    assert literal_eval(given(f"[analyze]\n{text}\n", *words.split()).output) == seen


def test_help_works_with_a_broken_file(here: Path) -> None:
    (here / "nsysflow.toml").write_text("[analyze\n")
    for name in COMMANDS:
        for word in ("-h", "--help"):
            assert "Usage:" in run(name, word).stdout
    said = refused("profile", "--dry-run", "--", "true", "-h", code=1)
    assert "is not valid TOML" in said


def test_the_switch_that_turns_a_flag_off_stays_out_of_help_and_file(given: Given) -> None:
    assert "--no-force" not in given("", "--help").output
    assert "has no option --no-force" in refusal(given("[analyze]\nno-force = true\n"))


def test_only_these_commands_read_the_file(here: Path) -> None:
    (here / "nsysflow.toml").write_text("not TOML\n")

    def reads_it(name: str) -> bool:
        try:
            with suppress(click.UsageError):  # no argument is typed
                parsed(name)
        except SettingsError:
            return True
        return False

    assert tuple(filter(reads_it, sorted(SUMMARIES))) == COMMANDS


def values_in(folder: Path) -> dict[str, Any]:
    """What the file that counts in a folder holds for `analyze`."""
    found = settings_of("analyze", folder, KNOWN)
    assert found is not None
    return dict(found.values)


def test_the_nearest_folder_with_a_table_of_ours_wins(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    project = tmp_path / "a" / "pyproject.toml"
    (tmp_path / "nsysflow.toml").write_text("[analyze]\ntop = 1\n")
    project.write_text("[project]\nname = 'x'\n")
    assert values_in(inner) == {"top": 1}
    project.write_text("[tool.nsysflow.analyze]\ntop = 2\n")
    assert values_in(inner) == {"top": 2}
    (tmp_path / "a" / "nsysflow.toml").write_text("[analyze]\ntop = 3\n")
    assert values_in(inner) == {"top": 3}


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "nsysflow.toml").write_text(
        f"[analyze]\noutput = 'out'\nnsys = 'bin/nsys'\ninclude = ['b', '{elsewhere}', '-']\n"
    )
    monkeypatch.chdir(inner)
    assert literal_eval(CliRunner().invoke(analyze, []).output) == {
        "output": str(tmp_path / "out"),
        "nsys": str(tmp_path / "bin" / "nsys"),
        "include": (str(tmp_path / "b"), str(elsewhere), "-"),
    }
    typed = CliRunner().invoke(analyze, ["--output", "out"])
    assert literal_eval(typed.output)["output"] == "out"


WRONG_VALUES = (
    *("force = 3", "top = '3'", "top = 2.7", "form = 3", "from = true", "domain = [true]"),
    "min-gap-us = ['a', 'b']",
    *("top = 0", "from = 'soon'"),  # what the option itself refuses
    *("tpo = 1", "workload = 1"),
)
MISTAKES = (
    *(("nsysflow.toml", f"[analyze]\n{line}") for line in WRONG_VALUES),
    *(("nsysflow.toml", text) for text in ("[analyze", "analyze = 3", "osrt = true")),
    ("nsysflow.toml", "[profil]\nosrt = true"),
    ("pyproject.toml", "[tool.nsysflow]\nosrt = true"),
    ("pyproject.toml", "[tool.nsysflow.analyze]\nforce = 1"),
)
"""Files; what is said of them is in tests/report/pages/settings.txt."""


def mistakes() -> Iterator[str]:
    for name, text in MISTAKES:
        with TemporaryDirectory() as folder, chdir(folder):
            Path(name).write_text(text)
            said = refusal(CliRunner().invoke(analyze, [])).replace(f"{Path.cwd()}/", "")
            yield re.sub(r"(?<=not valid TOML): [^.]*", "", said)  # Python's words differ
