"""docs/usage.md: every command, option and file is in it."""

import re
from typing import Final

import click
import pytest

from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.cli.main import main
from tests.reports import ROOT

USAGE: Final = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")

assert isinstance(main, click.Group)
OPTIONS: Final = [
    (name, option)
    for name, command in main.commands.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


@pytest.mark.parametrize("command", sorted(main.commands))
def test_a_command_is_described(command: str) -> None:
    assert f"`nsysflow {command}" in USAGE


@pytest.mark.parametrize(
    ("command", "option"), OPTIONS, ids=[f"{name} {each.opts[-1]}" for name, each in OPTIONS]
)
def test_an_option_is_described(command: str, option: click.Option) -> None:
    named = [each for each in option.opts if re.search(rf"{each}\b", USAGE)]
    assert named, f"nsysflow {command} {option.opts[-1]} is not in docs/usage.md"


@pytest.mark.parametrize("table", [each for each in declarations(ABOUT) if each.csv != "never"])
def test_a_file_is_described_and_leads_to_its_columns(table: object) -> None:
    name = getattr(table, "name", "")
    assert f"| `{name}.csv` | " in USAGE
    assert f"](tables.md#{name})" in USAGE
