"""The README, run: its commands, what they print, its Python, its links."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click
import pytest

from tests.reports import ROOT, SAMPLES
from tests.shown import FENCED, commands, console_blocks, is_shown

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCKS: Final = FENCED.findall(README)
"""By language: `console` and `python` are run, `text` is what the Python before it prints; `sh` and
`py` need a GPU, nsys or a package manager."""

CONSOLE: Final = console_blocks(README)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the names that the README uses, and `nsysflow` on the PATH."""
    from nsysflow.analysis.load.pack import pack

    folder, programs = tmp_path / "here", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "samples").symlink_to(SAMPLES)
    pack(SAMPLES / "nan_check-sync.sqlite.xz", folder / "report.sqlite")
    program = programs / "nsysflow"
    code = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -c "{code}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("block", CONSOLE, ids=[commands(block)[0][0] for block in CONSOLE])
def test_a_command_of_the_readme_prints_what_is_shown(block: str) -> None:
    for command, shown in commands(block):
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = done.stdout
        assert "Traceback" not in printed
        assert is_shown(shown, printed), f"README.md shows otherwise. $ {command}\n{printed}"


@pytest.mark.usefixtures("here")
def test_the_python_of_the_readme_runs_in_order_and_prints_what_is_shown() -> None:
    names: dict[str, Any] = {}
    ran = 0
    for index, (language, body) in enumerate(BLOCKS):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"README.md, python block {ran}", "exec"), names)
        kind, shown = BLOCKS[index + 1]
        assert kind == "text", "what it prints should follow"
        assert printed.getvalue() == shown
        ran += 1
    assert ran


def test_elision_stands_for_lines_and_nothing_else() -> None:
    assert is_shown("a\n…\nd\n", "a\nb\nc\nd\n")
    assert not is_shown("a\n…\nd\n", "a\nb\nc\n")
    assert not is_shown("a\n…d\n", "a\nbd\n")


def test_two_make_commands_set_everything_up() -> None:
    typed = [
        line.split("#")[0].strip()
        for language, body in BLOCKS
        if language == "sh"
        for line in body.splitlines()
        if line.startswith("make")
    ]
    assert typed == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in typed:
        target = command.removeprefix("make ")
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"


def test_the_readme_names_every_command_and_option() -> None:
    from nsysflow.cli.main import main

    assert isinstance(main, click.Group)
    for name, command in main.commands.items():
        assert f"nsysflow {name}" in README
        for option in command.params:
            if isinstance(option, click.Option):
                named = [each for each in option.opts if re.search(rf"{each}\b", README)]
                assert named, f"nsysflow {name} {option.opts[-1]} is not in README.md"


def test_the_readme_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        page = ROOT / path if path else ROOT / "README.md"
        assert page.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in anchors, target
