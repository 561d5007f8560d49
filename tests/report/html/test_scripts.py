"""The scripts of the pages share one scope: each name is declared once, each file is used."""

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from nsysflow.report.html.diff import DIFF
from nsysflow.report.html.document import STYLES, PageKind, around
from nsysflow.report.html.page import PAGE

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
