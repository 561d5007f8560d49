import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsysflow.report.document import report_json
from nsysflow.report.html.columns import Packed, packed, packed_deltas
from nsysflow.report.html.diff import DIFF
from nsysflow.report.html.document import STYLES, PageKind, around
from nsysflow.report.html.page import PAGE
from tests.analyses import run_of
from tests.report.handmade import HOSTILE
from tests.report.html.made import Page, page_of, run_of_these, values_of
from tests.tiny import Row, analysis_of, kernel, launch, opened

SVG = "http://www.w3.org/2000/svg"
"""The name of what browsers draw: nothing is asked of it."""


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    rows: list[Row] = []
    for at, name in enumerate(HOSTILE):
        start = 100 * at
        rows += [launch(start, start + 3, at), kernel(start + 5, start + 9, at, name=name)]
        rows.append(opened(start, start + 20, name))
    runs = (run_of_these(each) for each in (analysis_of(*rows), analysis_of()))
    ours, bare = (page_of(run, tmp_path) for run in runs)
    tags, bare_tags = (len(re.findall(r"</?script\b", each.text)) for each in (ours, bare))
    blobs, bare_blobs = (sum(key.startswith("b") for key in each.scripts) for each in (ours, bare))
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


COUNTS = st.lists(st.integers(0, 2**53), max_size=20)


@given(COUNTS)
@example([])
@example([0, 0])
@pytest.mark.parametrize("pack", [packed, packed_deltas])
def test_a_column_is_read_back_as_it_was_and_left_out_if_all_is_0(
    pack: Callable[[pl.Series], Packed | None], numbers: list[int]
) -> None:
    column = pack(pl.Series(numbers, dtype=pl.Int64))
    assert (column is None) == (not any(numbers))
    assert column is None or values_of(column.data, asdict(column)) == numbers


@pytest.mark.parametrize(
    ("most", "kind"),
    [(255, "u8"), (256, "u16"), (65_535, "u16"), (65_536, "u32"), (2**32, "f64"), (2**53, "f64")],
)
def test_a_column_has_the_smallest_type_that_holds_it(most: int, kind: str) -> None:
    column = packed(pl.Series([0, most]))
    assert column is not None
    assert column.type == kind


@pytest.mark.parametrize(
    ("numbers", "jumps"),
    [
        ([5, 2], ()),
        ([2**31 - 1, 0], ()),
        ([2**31], ((0, 2**31),)),
        ([2**53, 7, 2**40], ((0, 2**53), (1, 7 - 2**53), (2, 2**40 - 7))),
    ],
)
def test_a_difference_that_does_not_fit_stands_by_itself(
    numbers: list[int], jumps: tuple[tuple[int, int], ...]
) -> None:
    column = packed_deltas(pl.Series(numbers))
    assert column is not None
    assert (column.type, column.jumps) == ("i32", jumps)


FOLDER: Final = Path(str(files("nsysflow.report.html")))
DECLARED: Final = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
FORBIDDEN: Final = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
both = pytest.mark.parametrize("kind", [PAGE, DIFF], ids=["page", "diff"])


@both
def test_no_name_is_declared_twice(kind: PageKind) -> None:
    texts = (FOLDER.joinpath(name).read_text("utf-8") for name in kind.scripts)
    names = Counter(name for text in texts for name in DECLARED.findall(text))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_is_part_of_a_page() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.js")}
    assert there == {*PAGE.scripts, *DIFF.scripts}
    assert {path.stem for path in FOLDER.glob("look/*.css")} == {*STYLES}


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@both
def test_the_policy_allows_its_script_and_its_style_and_nothing_else(kind: PageKind) -> None:
    head, tail = (part.decode() for part in around(kind, 'a "title" <b>'))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', head)
    (script,) = re.findall(r"<script>(.*?)</script>", head + tail, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", head + tail, re.DOTALL)
    assert dict(rule.strip().split(" ", 1) for rule in policy.split(";")) == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": hashed(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert "<title>a &quot;title&quot; &lt;b&gt;</title>" in head
    assert "{" not in re.sub(r"<(style|script)>.*?</\1>", "", head + tail, flags=re.DOTALL)


def test_no_markup_is_made_of_text() -> None:
    for path in FOLDER.rglob("*.js"):
        text = path.read_text("utf-8")
        assert [name for name in FORBIDDEN if name in text] == [], path.name
