"""The pages that people read: their commands print what is shown, their Python runs and so does the
notebook, their links lead somewhere."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from tests.reports import ROOT
from tests.shown import FENCED, commands, console_blocks, is_shown

READ_BY_USERS: Final = (
    "README.md",
    "docs/usage.md",
    "docs/look.md",
    "docs/reading.md",
    "docs/ci.md",
    "docs/clusters.md",
    "docs/walkthrough.md",
)
"""Pages whose commands and Python are run in a folder of their own. Blocks of `sh` and `py` need a
GPU, nsys or a package manager."""

LINKED: Final = (
    *READ_BY_USERS,
    *("docs/accuracy.md", "docs/case-studies.md", "docs/design.md", "docs/facts.md"),
    *("docs/frameworks.md", "docs/spec.md", "docs/tables.md", "docs/tour.md"),
    *("docs/compatibility.md", "docs/threat-model.md", "SECURITY.md"),
    *("CONTRIBUTING.md", "CHANGELOG.md", "samples/README.md", "kernels/RESULTS.md"),
)

CONSOLE: Final = [
    pytest.param(
        page,
        block,
        id=f"{page}: {commands(block)[0][0]}",
        marks=pytest.mark.long if "clusters" in page else pytest.mark.slow,  # two runs of ten ranks
    )
    for page in READ_BY_USERS
    for block in console_blocks((ROOT / page).read_text(encoding="utf-8"))
]


SHELL: Final = {"|", ">", ">>", "&&", ";"}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("page", "block"), CONSOLE)
def test_a_command_prints_what_is_shown(page: str, block: str) -> None:
    for command, shown in commands(block):
        printed = printed_by(command)
        assert "Traceback" not in printed
        assert is_shown(shown, printed), f"{page} shows otherwise. $ {command}\n{printed}"


def expanded(word: str) -> list[str]:
    """The files that a pattern stands for in a shell; a word that is none, itself."""
    return sorted(map(str, Path().glob(word))) or [word]


def printed_by(command: str) -> str:
    """All that a line prints. A command of ours alone runs in this process, which takes a third of
    the time; a pipe or a loop takes a shell."""
    words = shlex.split(command)
    if words[0] == "nsysflow" and not SHELL.intersection(words):
        typed = [file for word in words[1:] for file in expanded(word)]
        done = CliRunner().invoke(main, typed, prog_name="nsysflow", catch_exceptions=False)
        return done.output
    shell = ["bash", "-c", f"exec 2>&1; {command}"]
    return subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False).stdout


WITH_PYTHON: Final = ("README.md", "docs/usage.md")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_in_order_and_prints_what_is_shown(page: str) -> None:
    ran = list(run_python(page))
    assert ran
    for shown, printed in ran:
        assert printed == shown


def run_python(page: str) -> Iterator[tuple[str, str]]:
    """Of each Python block of a page, in order, the text shown behind it and what it prints."""
    blocks = FENCED.findall((ROOT / page).read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for (language, body), (follows, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"{page}, a python block", "exec"), names)
        assert follows == "text", "what it prints should follow"
        yield shown, printed.getvalue()


def anchors(page: str) -> set[str]:
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        other = file.parent / path if path else file
        assert other.exists(), target
        assert not anchor or anchor in anchors(other.read_text(encoding="utf-8")), target


NOTEBOOK = ROOT / "docs" / "library.ipynb"

Cell = dict[str, Any]

_IMAGE: Final = re.compile('data:image/png;base64,[^"]*')


def executed(target: Path) -> list[Cell]:
    """The cells as they are now, run by a process of its own."""
    argv = [sys.executable, str(ROOT / "docs" / "run_notebook.py"), str(target)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return cells(target)


def cells(file: Path) -> list[Cell]:
    found: list[Cell] = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return found


def shown(cell: Cell) -> list[str]:
    """What a cell prints, and what we show: neither frames nor figures, whose looks are those of
    their libraries."""
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        plain = "".join(data.get("text/plain", []))
        if output["output_type"] == "stream":
            found.append("".join(output["text"]))
        elif plain.startswith("<Analysis"):
            found += [plain, _IMAGE.sub("", "".join(data["text/html"]))]
    return found


@pytest.mark.long
def test_the_cells_give_what_is_stored_and_print_no_warning(tmp_path: Path) -> None:
    run, stored = executed(tmp_path / "library.ipynb"), cells(NOTEBOOK)
    assert [each["source"] for each in run] == [each["source"] for each in stored]
    behind = [
        "".join(now["source"])
        for now, then in zip(run, stored, strict=True)
        if shown(now) != shown(then)
    ]
    assert behind == [], "run `python docs/run_notebook.py`"
    outputs = [output for cell in run for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
