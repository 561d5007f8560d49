"""Pages of real reports, each made once, what their figures show, and what their scripts hold."""

import json
import re
import zlib
from array import array
from base64 import b64decode
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from nsysflow.analysis.analyze import Analysis
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
    paths = {name: PACKED[name] for name in names}
    return made_of(run_of_these(*map(analysed, names), paths=paths))


def made_of(run: Results) -> Made:
    return Made(_written(run), json.loads(report_json(run)))


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


_SCRIPT: Final = re.compile(
    r'<script type="application/[\w-]+" id="(\w+)">(.*?)</script>', re.DOTALL
)
_CODES: Final = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "f64": "d"}


class Page:
    """A page read back: what its scripts hold, with columns as lists."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.scripts = dict(_SCRIPT.findall(text))
        self.about: dict[str, Any] = json.loads(self.scripts["about"])
        self.report: dict[str, Any] = json.loads(self.inflated("report"))

    @cached_property
    def reports(self) -> Any:
        return self.about["timeline"]["reports"]

    def inflated(self, blob: str) -> bytes:
        return zlib.decompress(b64decode(self.scripts[blob]))

    def texts(self, blob: str) -> Any:
        return json.loads(self.inflated(blob))

    def column(self, report: int, table: str, name: str) -> list[float]:
        """The numbers of a column; all 0 where the page leaves it out."""
        held = self.reports[report]["tables"][table]
        if name not in held["columns"]:
            return [0] * held["n"]
        return values_of(self.inflated(held["columns"][name]["blob"]), held["columns"][name])


def values_of(data: bytes, column: dict[str, Any]) -> list[float]:
    """The numbers behind shuffled bytes: first bytes come first."""
    values = array(_CODES[column["type"]])
    count = len(data) // values.itemsize
    values.frombytes(
        bytes(data[k * count + i] for i in range(count) for k in range(values.itemsize))
    )
    if not column["delta"]:
        return list(values)
    differences = list(values)
    for row, difference in column.get("jumps", ()):
        differences[row] += difference
    return list(accumulate(differences))


def run_of_these(*analyses: Analysis, paths: dict[str, Path] | None = None) -> Results:
    """A run of these reports; each is at its path, by default a file of its name."""
    paths = paths or {each.trace.report: Path(each.trace.report) for each in analyses}
    return Results(analyses, origin=Origin(paths=paths, typed=tuple(paths.values())))


def page_of(results: Results, folder: Path) -> Page:
    file = folder / "report.html"
    write_html(results, file)
    return Page(file.read_text(encoding="utf-8"))
