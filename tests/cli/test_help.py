"""What help pages show."""

import re

import click
import pytest
from click.testing import CliRunner

from nsysflow.analysis.tables.index import ABOUT
from nsysflow.cli.main import main
from nsysflow.cli.options import Option

OPTIONS = [
    pytest.param(command, option, id=f"{name} {option.opts[-1]}")
    for name, command in main.commands.items()
    for option in command.params
    if isinstance(option, click.Option)
]


def page(*words: str) -> str:
    return CliRunner().invoke(main, [*words, "--help"]).stdout


def test_the_commands_come_in_the_order_in_which_a_newcomer_needs_them() -> None:
    names = re.findall(r"^  (\w+)  ", page().partition("Commands:")[2], re.MULTILINE)
    assert names == [
        "demo",
        "profile",
        "analyze",
        "show",
        "explain",
        "whatif",
        "diff",
        "check",
        "doctor",
        "list",
        "pack",
        "cache",
        "mcp",
        "skill",
        "bench",
        "completion",
    ]


def test_no_summary_of_a_command_is_cut() -> None:
    assert "..." not in page().partition("Commands:")[2]


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_the_version_has_a_short_option(word: str) -> None:
    assert CliRunner().invoke(main, [word]).stdout.startswith("nsysflow, version ")


@pytest.mark.parametrize("command", ["analyze", "profile"])
def test_the_options_of_a_large_command_stand_in_sections(command: str) -> None:
    sections = re.findall(r"^(\w[\w ]*):$", page(command), re.MULTILINE)
    assert len(sections) >= 4
    assert "Options" in sections[-2:]  # of which only --help is left, at the end


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_the_help_of_an_option_is_a_sentence_and_its_default_is_shown(
    command: click.Command, option: click.Option
) -> None:
    assert option.help is not None
    assert option.help[0].isupper()
    assert option.help.endswith(".")
    assert "default" not in option.help  # click shows it, in one form
    if isinstance(option, Option) and option.to_info_dict()["default"] not in (None, False, ()):
        record = option.get_help_record(click.Context(command, show_default=True))
        assert record is not None
        assert "[default: " in record[1]


def test_every_table_is_listed_with_what_a_row_is() -> None:
    listed = " ".join(page("analyze").partition("Tables:")[2].split())
    assert all(f"{name} {about}" in listed for name, about in ABOUT.items())
