"""Put into the pages what their commands and Python print today. A line `…` stays one that stands
for any lines.

    python -m tests.docs.renew

Read the difference before you commit it: prose around a block may name its figures.
"""

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import pytest

from tests.docs.conftest import described_folder, unpacked_report
from tests.docs.test_case_studies import COMPARED, compared
from tests.docs.test_pages import READ_BY_USERS, WITH_PYTHON, printed_by, run_python
from tests.reports import ROOT
from tests.shown import FENCED, commands, is_shown

CASES: Final = "docs/case-studies.md"


def renewed(shown: str, printed: str) -> str:
    """What a page shows of `printed`: of each part between two lines `…`, as many lines as before,
    those most like it."""
    if is_shown(shown, printed):
        return shown
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    parts = [part.strip("\n").split("\n") for part in re.split(r"^…$", shown, flags=re.MULTILINE)]
    if len(parts) == 1:
        return "\n".join(lines) + "\n" * shown.endswith("\n")
    begin, new = 0, []
    for part in parts:
        if part == [""]:  # a line `…` comes first or last
            new.append("")
            continue
        ends = range(begin, len(lines) - len(part) + 1)
        likeness = partial(SequenceMatcher, None, "\n".join(part), autojunk=False)
        begin = max(ends, key=lambda at: likeness("\n".join(lines[at : at + len(part)])).ratio())
        new.append("\n".join(lines[begin : begin + len(part)]))
        begin += len(part)
    return "\n…\n".join(new).strip("\n") + "\n" * shown.endswith("\n")


def renewed_page(text: str) -> str:
    """A page whose console blocks show what their commands print in the current folder."""

    def block(match: re.Match[str]) -> str:
        language, body = match.groups()
        if language != "console":
            return match[0]
        for command, shown in commands(body):
            body = body.replace(
                f"$ {command}\n{shown}", f"$ {command}\n{renewed(shown, printed_by(command))}"
            )
        return f"```{language}\n{body}```"

    return FENCED.sub(block, text)


def renewed_texts(text: str, ran: list[tuple[str, str]]) -> str:
    """A page with what its Python prints.

    Args:
        text: the page.
        ran: of each block, what the page showed, and what it printed.
    """
    for shown, printed in ran:
        text = text.replace(f"```text\n{shown}```", f"```text\n{printed}```")
    return text


def renewed_table(text: str) -> str:
    """The case studies with the rows of their table as they are now."""
    for pair in COMPARED:
        before, after = map(re.escape, pair)
        text = re.sub(
            rf"^\| `{before}` \| `{after}` \| .* \|$",
            f"| {compared(*pair)} |",
            text,
            flags=re.MULTILINE,
        )
    return text


def main() -> None:
    """Write all pages anew."""
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryDirectory() as temporary,
        unpacked_report(Path(temporary)) as report,
    ):
        described_folder(Path(temporary), report, patch)
        for page in READ_BY_USERS:
            write(page, renewed_page)
        for page in WITH_PYTHON:
            write(page, partial(renewed_texts, ran=list(run_python(page))))
        patch.chdir(ROOT)
        write(CASES, renewed_page)
        write(CASES, renewed_table)


def write(page: str, change: Callable[[str], str]) -> None:
    """Change one page, and say so."""
    path = ROOT / page
    before = path.read_text(encoding="utf-8")
    after = change(before)
    if after != before:
        path.write_text(after, encoding="utf-8")
        click.echo(f"{page}: renewed")


if __name__ == "__main__":
    main()
