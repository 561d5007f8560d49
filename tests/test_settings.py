"""Options from nsysflow.toml and pyproject.toml."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nsysflow.cli import main
from nsysflow.errors import SettingsError
from nsysflow.settings import configured, settings_of

KNOWN = ("top", "min-gap-us", "domain")


@click.command(cls=configured(), name="analyze")
@click.option("--top", type=int)
@click.option("--min-gap-us", "at_least")
@click.option("--domain", multiple=True)
@click.option("--force", is_flag=True)
def analyze(**typed: object) -> None:
    click.echo(typed)


def given(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *words: str) -> str:
    (folder / "nsysflow.toml").write_text(text)
    monkeypatch.chdir(folder)
    ran = CliRunner().invoke(analyze, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_a_file_gives_options_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "[analyze]\ntop = 3\nmin-gap-us = 1.5\ndomain = ['a', '-b']\nforce = true\n"
    seen = given(tmp_path, monkeypatch, text)
    assert seen == "{'top': 3, 'at_least': '1.5', 'domain': ('a', '-b'), 'force': True}\n"


def test_what_is_typed_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'top': 9" in given(tmp_path, monkeypatch, "[analyze]\ntop = 3\n", "--top", "9")


def test_underscores_are_as_good_as_dashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'at_least': '7'" in given(tmp_path, monkeypatch, "[analyze]\nmin_gap_us = 7\n")


def test_a_value_of_the_wrong_kind_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsysflow.toml").write_text("[analyze]\ntop = 'many'\n")
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(analyze, [])
    assert ran.exit_code == 2
    assert "many" in ran.output


def test_another_commands_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nsysflow.toml").write_text("[profile]\nbacktrace = true\n")
    assert settings_of("analyze", tmp_path, KNOWN) == {}


def test_the_nearest_folder_wins(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "nsysflow.toml").write_text("[analyze]\ntop = 1\n")
    assert settings_of("analyze", inner, KNOWN) == {"top": 1}
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.nsysflow.analyze]\ntop = 2\n")
    assert settings_of("analyze", inner, KNOWN) == {"top": 2}
    (tmp_path / "a" / "nsysflow.toml").write_text("[analyze]\ntop = 3\n")
    assert settings_of("analyze", inner, KNOWN) == {"top": 3}


def test_a_pyproject_without_our_table_does_not_hide_what_is_above(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / "nsysflow.toml").write_text("[analyze]\ntop = 1\n")
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert settings_of("analyze", inner, KNOWN) == {"top": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[analyze]\ntpo = 1\n", "did you mean top?"),
        ("[analyze\n", "is not valid TOML"),
        ("analyze = 3\n", "must be a table"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "nsysflow.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said) as raised:
        settings_of("analyze", tmp_path, KNOWN)
    assert str(file) in str(raised.value)


def test_a_mistake_in_the_file_ends_the_command_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsysflow.toml").write_text("[profile]\nbacktraces = true\n")
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["profile", "--", "true"])
    assert ran.exit_code == 1
    assert ran.output.startswith("nsysflow: ")
    assert "--backtraces; did you mean backtrace?" in ran.output
    assert CliRunner().invoke(main, ["demo", "-h"]).exit_code == 0
