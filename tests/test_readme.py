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

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")

FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Blocks by language: `console` and `python` are run, `text` is what the Python before it prints;
`sh` and `py` need a GPU, nsys or a package manager."""

BLOCKS: Final = [(language, body) for language, body in FENCED.findall(README)]
CONSOLE: Final = [body for language, body in BLOCKS if language == "console"]

PACKED_SIZES: Final = re.compile(r"[\d,]+ of [\d,]+ bytes")
"""What `pack` wrote: a few bytes more or less with another SQLite or liblzma."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the names that the README uses, and `nsysflow` on the PATH."""
    from nsysflow.analysis.pack import pack

    folder, programs = tmp_path / "here", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "samples").symlink_to(SAMPLES)
    pack(SAMPLES / "nan_check-sync.sqlite.xz", folder / "report.sqlite")
    program = programs / "nsysflow"
    code = "from nsysflow.cli import main; main(prog_name='nsysflow')"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -c "{code}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console block, and what it prints."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def plain(text: str) -> str:
    """`text` without what differs from machine to machine."""
    lines = PACKED_SIZES.sub("N of N bytes", text).rstrip("\n").split("\n")
    return "\n".join(line.rstrip() for line in lines)


def is_shown(shown: str, printed: str) -> bool:
    """`printed` is `shown`, where a line `…` stands for any lines."""
    lines = plain(shown).split("\n")
    pattern = "\n".join("(?:.*\n)*.*" if line == "…" else re.escape(line) for line in lines)
    return re.fullmatch(pattern, plain(printed)) is not None


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
    from nsysflow.cli import main

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
