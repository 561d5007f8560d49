"""Pages of real reports, each made once, and what their figures show."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from nsysflow.base import units
from nsysflow.report.document import report_json
from nsysflow.report.html.page import write_html
from nsysflow.report.results import Origin, Results
from tests.analyses import analysed
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
    file = Path(mkdtemp()) / "report.html"
    write_html(results, file)
    return Made(file, json.loads(report_json(results)))


def figures(page: Any) -> Iterator[dict[str, str]]:
    """The figures of an open page: their text and their `data-` attributes."""
    shown = """each => each.map(it => ({text: it.textContent, ...it.dataset}))"""
    yield from page.eval_on_selector_all("[data-key]", shown)


def value_at(document: Any, pointer: str) -> Any:
    """The value at a JSON pointer."""
    for key in pointer.split("/")[1:]:
        document = document[int(key) if isinstance(document, list) else key]
    return document


def text_of(unit: str, value: Any) -> str:
    """A value as nsysflow/base/units.py writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = {
        **{name: getattr(units, name) for name in ("duration", "signed", "size", "flops")},
        **{name: getattr(units, name) for name in ("instant", "percent")},
        "count": units.number,
        "number": units.significant,
        "flops_per_s": lambda each: f"{units.flops(each)}/s",
    }
    return str(shown[unit](value) if unit else value)
