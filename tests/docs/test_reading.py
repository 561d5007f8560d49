"""docs/reading.md: every cause as the page spells it, and a short glossary."""

import re
from typing import Final

from nsysflow.analysis.causes import CAUSES
from tests.reports import ROOT

READING: Final = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", READING, re.MULTILINE | re.DOTALL)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_explains_every_cause_by_its_label() -> None:
    rows = rows_of("Causes, and what helps")
    assert {row[0].strip("`"): row[1] for row in rows} == {
        name: cause.label for name, cause in CAUSES.items()
    }
    assert all(row[2] and row[3] for row in rows)


def test_the_glossary_is_short_and_in_order() -> None:
    names = [row[0] for row in rows_of("Glossary")]
    assert names == sorted(set(names))
    assert 15 <= len(names) <= 25
