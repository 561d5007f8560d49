"""The file: it holds all, asks for nothing, and no name can break out of it."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from nsysflow.report.document import report_json
from tests.analyses import run_of
from tests.report.html.unpacked import Page, page_of, run_of_these
from tests.tiny import analysis_of, kernel, launch, opened

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


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(run_of("h200-ddp-rank0"), tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_and_nothing_else(name: str, tmp_path: Path) -> None:
    run = analysis_of(launch(0, 3, 1), kernel(5, 9, 1, name=name), opened(0, 20, name))
    ours, theirs = (
        page_of(run_of_these(run), tmp_path),
        page_of(run_of_these(analysis_of()), tmp_path),
    )
    tags = [re.findall(r"</?script\b", each.text) for each in (ours, theirs)]
    blobs = [sum(key.startswith("b") for key in each.scripts) for each in (ours, theirs)]
    assert len(tags[0]) - len(tags[1]) == 2 * (blobs[0] - blobs[1])
    assert name in ours.texts(ours.reports[0]["strings"])
    assert ours.report["kernels"][0]["name"] == name


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(page: Page) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page.text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'{hashed(script)}'",
        "style-src": f"'{hashed(style)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def hashed(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def test_the_page_names_no_address(page: Page) -> None:
    assert not re.search(r"https?://", page.text.replace(SVG, ""))
    markup = re.sub(r"(<script[^>]*>).*?(?=</script>)", r"\1", page.text, flags=re.DOTALL)
    assert not re.search(r"""\b(?:src|href)\s*=\s*["'](?!#)""", markup)


def test_the_document_in_the_page_is_report_json_without_series(page: Page) -> None:
    document = json.loads(report_json(run_of("h200-ddp-rank0")))
    del document["series"]
    assert page.report == document


def test_the_page_says_which_version_wrote_it(page: Page) -> None:
    assert '<meta name="generator" content="nsysflow ' in page.text[:1_000]


def test_two_pages_of_one_report_are_the_same(page: Page, tmp_path: Path) -> None:
    assert page_of(run_of("h200-ddp-rank0"), tmp_path).text == page.text


def test_a_small_report_makes_a_small_page(page: Page) -> None:
    assert len(page.text) < 1_000_000
