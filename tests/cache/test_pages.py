"""A kept page is the page, with its colours; damage and other questions are noticed."""

from pathlib import Path

import pytest
from rich.text import Text

from nsysflow.cache.pages import Page, lines_of, packed, page_key, page_of, unpacked
from nsysflow.cache.store import Store
from nsysflow.report.terminal import page
from tests.analyses import run_of

KEY = "0" * 32


def lines() -> list[Text]:
    return [*page(run_of("nan_check-sync"), width=100, length="full", top=None)]


def test_a_page_comes_back_with_its_styles() -> None:
    made = lines()
    back = lines_of(unpacked(packed(page_of([], made))))
    assert [line.plain for line in back] == [line.plain for line in made]
    assert [line.markup for line in back] == [line.markup for line in made]
    assert any(line.spans for line in back)


@pytest.mark.parametrize("at", [0, 16, 100, -1])
def test_a_damaged_page_is_refused(at: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_page(KEY, Page(reports=("report.sqlite",), lines=page_of([], lines()).lines))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    assert store.page(KEY) is None
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_of_the_reports_their_order_and_all_that_was_asked(tmp_path: Path) -> None:
    first, second = tmp_path / "1.sqlite", tmp_path / "2.sqlite"
    first.write_text("1")
    second.write_text("2")
    asked = [
        ([first], ["--top 3"]),
        ([first], ["--top 4"]),
        ([second], ["--top 3"]),
        ([first, second], ["--top 3"]),
        ([second, first], ["--top 3"]),
    ]
    assert len({page_key(reports, words) for reports, words in asked}) == len(asked)
    assert page_key([first, tmp_path / "gone.sqlite"], []) is None
