"""The scripts of the pages share one scope: each name is declared once, each file is used."""

import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from nsysflow.report.html.diff import DIFF
from nsysflow.report.html.document import STYLES, PageKind, around
from nsysflow.report.html.page import PAGE

FOLDER: Final = Path(str(files("nsysflow.report.html")))
DECLARED: Final = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
BOTH: Final = pytest.mark.parametrize("kind", [PAGE, DIFF], ids=["page", "diff"])


@BOTH
def test_no_name_is_declared_twice(kind: PageKind) -> None:
    texts = (FOLDER.joinpath(name).read_text("utf-8") for name in kind.scripts)
    names = Counter(name for text in texts for name in DECLARED.findall(text))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_is_part_of_a_page() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.js")}
    assert there == {*PAGE.scripts, *DIFF.scripts}
    assert {path.stem for path in FOLDER.glob("look/*.css")} == {*STYLES}


@BOTH
def test_nothing_but_its_own_styles_and_scripts_may_run(kind: PageKind) -> None:
    head, tail = (part.decode() for part in around(kind, 'a "title" <b>'))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', head)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "<title>a &quot;title&quot; &lt;b&gt;</title>" in head
    assert "{" not in re.sub(r"<(style|script)>.*?</\1>", "", head + tail, flags=re.DOTALL)


def test_no_markup_is_made_of_text() -> None:
    for path in FOLDER.rglob("*.js"):
        text = path.read_text("utf-8")
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert forbidden not in text, path.name
