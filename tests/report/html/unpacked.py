"""A page read back: what its scripts hold, with columns as lists."""

import json
import re
import zlib
from array import array
from base64 import b64decode
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from nsysflow.analysis.analyze import Analysis
from nsysflow.report.html.page import write_html
from nsysflow.report.results import Origin, Results

_SCRIPT: Final = re.compile(
    r'<script type="application/[\w-]+" id="(\w+)">(.*?)</script>', re.DOTALL
)
_CODES: Final = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "f64": "d"}


class Page:
    """A page."""

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


def run_of_these(*analyses: Analysis) -> Results:
    """A run of these reports, as if each was a file of its name."""
    paths = {each.trace.report: Path(each.trace.report) for each in analyses}
    return Results(analyses, origin=Origin(paths=paths, typed=tuple(paths.values())))


def page_of(results: Results, folder: Path) -> Page:
    file = folder / "report.html"
    write_html(results, file)
    return Page(file.read_text(encoding="utf-8"))
