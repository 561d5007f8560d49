"""Every row of every table is on the page, with the figures of report.json, also out of sight."""

from typing import Any, Final

import pytest

from tests.browser import opened
from tests.report.html.made import made, text_of, value_at

COLLECT: Final = """
async () => {
  const found = new Map();
  const next = (done) => requestAnimationFrame(() => requestAnimationFrame(done));
  const frame = () => new Promise(next);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.click();
    const rows = document.querySelector("[role=tabpanel] .grid-scroll");
    for (let top = 0; top <= rows.scrollHeight; top += rows.clientHeight) {
      rows.scrollTop = top;
      await frame();
      for (const each of rows.querySelectorAll("[data-key]")) {
        const { key, value, unit } = each.dataset;
        found.set(key, { key, value, unit, text: each.textContent });
      }
    }
  }
  return [...found.values()];
}
"""
"""Scrolls through all tables: only the rows in sight are in the page."""

LONGEST: Final = 500
"""Longer texts are cut in a cell."""


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-hf-trainer", "synthetic-1"])
def test_every_row_is_there_with_its_figures(browser: Any, name: str) -> None:
    run = made(name)
    with opened(browser, run.file) as page:
        found = page.evaluate(COLLECT)
    for each in found:
        value = value_at(run.document, each["key"])
        text = text_of(each["unit"], value)
        assert each["text"][:LONGEST] == text[:LONGEST], each
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert float(each["value"]) == value, each
    shown = {"/".join(each["key"].split("/")[1:-1]) for each in found}
    for table in ("kernels", "syncs", "phases", "findings", "waited", "launches", "gap_summary"):
        rows = {f"{table}/{row}" for row in range(len(run.document[table]))}
        assert rows <= shown, table
