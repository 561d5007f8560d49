import json
import re
from pathlib import Path

import pytest

from nsysflow.report.document import report_json
from tests.analyses import run_of
from tests.report.html.unpacked import Page, page_of, run_of_these
from tests.tiny import Row, analysis_of, kernel, launch, opened

SVG = "http://www.w3.org/2000/svg"
"""The name of what browsers draw: nothing is asked of it."""

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "\"quoted\" and 'quoted' & \\ back",
    "x" * 5_000,
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd",
    "line\nbreak \u2028 \x00 \x1b[31m",
    "]]> {data} {script}",
)


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    rows: list[Row] = []
    for at, name in enumerate(HOSTILE):
        start = 100 * at
        rows += [launch(start, start + 3, at), kernel(start + 5, start + 9, at, name=name)]
        rows.append(opened(start, start + 20, name))
    runs = (run_of_these(each) for each in (analysis_of(*rows), analysis_of()))
    ours, theirs = (page_of(run, tmp_path) for run in runs)
    tags, bare_tags = (len(re.findall(r"</?script\b", each.text)) for each in (ours, theirs))
    blobs, bare_blobs = (
        sum(key.startswith("b") for key in each.scripts) for each in (ours, theirs)
    )
    assert tags - bare_tags == 2 * (blobs - bare_blobs)
    assert {*HOSTILE} <= {*ours.texts(ours.reports[0]["strings"])}
    assert {*HOSTILE} == {row["name"] for row in ours.report["kernels"]}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(run_of("h200-ddp-rank0"), tmp_path_factory.mktemp("page"))


def test_the_page_names_no_address(page: Page) -> None:
    assert not re.search(r"https?://", page.text.replace(SVG, ""))
    markup = re.sub(r"(<script[^>]*>).*?(?=</script>)", r"\1", page.text, flags=re.DOTALL)
    assert not re.search(r"""\b(?:src|href)\s*=\s*["'](?!#)""", markup)


def test_the_document_in_the_page_is_report_json_without_series(page: Page) -> None:
    document = json.loads(report_json(run_of("h200-ddp-rank0")))
    del document["series"]
    assert page.report == document


def test_a_page_of_a_small_report_is_small_and_the_same_each_time(
    page: Page, tmp_path: Path
) -> None:
    assert page_of(run_of("h200-ddp-rank0"), tmp_path).text == page.text
    assert len(page.text) < 1_000_000
