"""Pages of real reports, each made once, and what their figures show."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from nsysflow.base import units
from nsysflow.compare.comparison import Comparison, compared
from nsysflow.report.document import report_json
from nsysflow.report.html.diff import diff_html
from nsysflow.report.html.page import write_html
from nsysflow.report.results import Origin, Results
from nsysflow.runs.captures import captures_of
from tests.analyses import analysed
from tests.report.test_ranks import many
from tests.reports import PACKED


@dataclass(frozen=True)
class Made:
    """A page, and the document whose figures it shows."""

    file: Path
    document: dict[str, Any]


@cache
def made(*names: str) -> Made:
    """The page of real reports."""
    return page_of([analysed(name) for name in names], {name: PACKED[name] for name in names})


def page_of(analyses: list[Any], paths: dict[str, Path]) -> Made:
    """The page of a run."""
    results = Results(analyses, origin=Origin(paths=paths, typed=tuple(paths.values())))
    return Made(_written(results), json.loads(report_json(results)))


def _written(results: Results) -> Path:
    file = Path(mkdtemp()) / "report.html"
    write_html(results, file)
    return file


@cache
def page_of_many_ranks() -> Path:
    """The page of 64 ranks, of which one is looked at whole."""
    return _written(many(analysed("h200-ddp-rank0")))


@cache
def comparison() -> Comparison:
    """A wait that was removed."""
    base, new = captures_of([PACKED["nan_check-sync"], PACKED["nan_check-async"]])
    return compared([base], [new])


@cache
def page_of_comparison() -> Path:
    file = Path(mkdtemp()) / "diff.html"
    file.write_text(diff_html(comparison()), encoding="utf-8")
    return file


_FIGURES: Final = """
async () => {
  const found = new Map();
  const next = (done) => requestAnimationFrame(() => requestAnimationFrame(done));
  const keep = (within) => {
    for (const each of within.querySelectorAll("[data-key]")) {
      const figure = { text: each.textContent, ...each.dataset };
      found.set(JSON.stringify(figure), figure);
    }
  };
  keep(document);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.click();
    const rows = document.querySelector("[role=tabpanel] .grid-scroll");
    Object.assign(rows.style, { height: "9000px", maxHeight: "none" });
    for (let top = 0; top < rows.scrollHeight; top += rows.clientHeight) {
      rows.scrollTop = top;
      rows.dispatchEvent(new Event("scroll"));
      await new Promise(next);
      keep(rows);
    }
  }
  return [...found.values()];
}
"""
"""Scrolls through all tables, made high so that this is done soon: only the rows in sight, and 20
around them, are in the page."""


def figures(page: Any) -> Any:
    """All figures of an open page: their text and their `data-` attributes."""
    return page.evaluate(_FIGURES)


def value_at(document: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        document = document[int(key) if isinstance(document, list) else key]
    return document


def text_of(unit: str, value: Any) -> str:
    """A value as nsysflow/base/units.py writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    names = ("duration", "signed", "size", "flops", "instant", "percent")
    shown = {
        **{name: getattr(units, name) for name in names},
        "count": units.number,
        "number": units.significant,
        "bytes_per_s": lambda each: f"{units.size(round(each))}/s",
        "flops_per_s": lambda each: f"{units.flops(each)}/s",
    }
    return str(shown[unit](value) if unit else value)


def spoken(text: str | None) -> str:
    """A text of the page with plain spaces."""
    return str(text).replace("\xa0", " ")
