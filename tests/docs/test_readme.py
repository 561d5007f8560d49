"""The README: short, with the commands that set everything up."""

import re
from typing import Final

from tests.reports import ROOT
from tests.shown import FENCED, console_blocks

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short_and_so_is_its_page() -> None:
    assert len(README.splitlines()) <= 200
    assert len(console_blocks(README)[0].splitlines()) <= 26  # the command, and 25 lines of a page


def test_two_make_commands_set_everything_up() -> None:
    typed = [
        line.split("#")[0].strip()
        for language, body in FENCED.findall(README)
        if language == "sh"
        for line in body.splitlines()
        if line.startswith("make")
    ]
    assert typed == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in typed:
        target = command.removeprefix("make ")
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"
