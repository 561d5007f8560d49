import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator
from typing import Final

import pytest
from click.testing import CliRunner

from nsysflow.cli.agents import guide
from nsysflow.cli.main import main
from tests.cli.running import parsed
from tests.reports import SAMPLES
from tests.sharing import shared_analyses

SYNC, ASYNC = "nan_check-sync.sqlite.xz", "nan_check-async.sqlite.xz"
BLOCKS: Final = re.findall(r"^```sh\n(.*?)^```", guide(), re.MULTILINE | re.DOTALL)
COMMANDS: Final = [line for block in BLOCKS for line in block.splitlines()]

ELSEWHERE: Final = ("profile", "doctor", "diff")
"""Commands that need a GPU, and one that is run as README.md shows it."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In a folder with the captures that the guide speaks of, each of which is analysed once."""
    folder = tmp_path_factory.mktemp("here")
    for side, sample in (("before", SYNC), ("after", ASYNC)):
        for number in (1, 2, 3):
            shutil.copy(SAMPLES / sample, folder / f"{side}{number}")
    with shared_analyses(*folder.iterdir()), contextlib.chdir(folder):
        yield


def words(command: str) -> list[str]:
    """The words after `nsysflow`, those of the sample in place of the guide's."""
    here = command.partition(">")[0] if " > " in command else command
    typed = shlex.split(here.replace("train.py:42", "nan_check.py:125"))
    assert typed[0] == "nsysflow"
    return typed[1:]


def test_the_guide_is_short_and_shows_how_to_record_read_check_and_verify() -> None:
    assert len(guide().splitlines()) <= 100
    shown = {words(each)[0] for each in COMMANDS}
    assert shown >= {"profile", "analyze", "explain", "whatif", "diff", "check"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_parses(command: str) -> None:
    parsed(*words(command))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", [each for each in COMMANDS if words(each)[0] not in ELSEWHERE])
def test_a_command_works(command: str) -> None:
    done = CliRunner().invoke(main, words(command))
    assert done.exit_code in ((0, 3, 4) if "check" in command else (0,)), done.output


def test_its_exit_codes_are_those_of_the_documentation() -> None:
    usage = (SAMPLES.parent / "docs" / "usage.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d) \|", guide(), re.MULTILINE)
    assert codes == re.findall(r"^\| (\d) \|", usage.partition("## Exit codes")[2], re.MULTILINE)


def test_the_command_prints_it() -> None:
    assert CliRunner().invoke(main, ["skill"]).stdout == guide()
