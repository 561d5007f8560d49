import re
from xml.etree import ElementTree

import pytest

from nsysflow.report.figures.drawing import OF_COMPARISON, OF_RUN
from nsysflow.report.figures.style import COLUMN_MM, PAGE_MM
from nsysflow.report.pictures import DrawnFigures
from tests.report.figures.drawn import ranks
from tests.report.figures.test_bridge import SAME
from tests.report.handmade import device, results

MM_PER_POINT = 25.4 / 72
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def of_ranks() -> DrawnFigures:
    return OF_RUN.draw(ranks())


def test_a_run_of_ranks_has_every_figure_with_the_same_bytes_each_time(
    of_ranks: DrawnFigures,
) -> None:
    assert of_ranks.names == [kind.name for kind in OF_RUN.kinds]
    assert [*of_ranks.files] == OF_RUN.files
    assert of_ranks.empty == {}
    assert OF_RUN.draw(ranks()).files == of_ranks.files


def test_what_is_empty_is_not_drawn_and_why_is_said() -> None:
    drawn = OF_RUN.draw(results())
    assert drawn.files == {}
    assert [*drawn.empty] == [kind.name for kind in OF_RUN.kinds]
    assert drawn.not_there == OF_RUN.files
    assert OF_COMPARISON.draw(SAME).empty == {"bridge": "nothing changed"}


def test_an_svg_is_one_or_two_columns_wide_and_holds_text_and_no_date(
    of_ranks: DrawnFigures,
) -> None:
    for name, content in of_ranks.files.items():
        if name.endswith(".svg"):
            tree = ElementTree.fromstring(content)
            width = float(tree.attrib["width"].removesuffix("pt")) * MM_PER_POINT
            assert min(abs(width - mm) for mm in (COLUMN_MM, PAGE_MM)) < 0.01
            read = [text.text or "" for text in tree.iter(f"{SVG}text")]
            assert any("ddp-bucketed-rank0" in text for text in read)
            assert not re.search(rb"dc:date|\b20\d\d-\d\d", content)


def test_a_png_has_300_dots_per_inch_and_says_who_made_it(of_ranks: DrawnFigures) -> None:
    content = of_ranks.files["breakdown.png"]
    assert content.startswith(b"\x89PNG")
    assert b"Software\x00nsysflow" in content
    at = content.index(b"pHYs") + 4
    assert int.from_bytes(content[at : at + 4], "big") == round(300 / 0.0254)


def test_names_in_an_svg_are_text_whatever_they_are() -> None:
    name = '<script>alert("$x^2$")</script> & \N{HEBREW LETTER ALEF}\N{GRINNING FACE}'
    run = results(accounting=[device(9_000_000, name=name)])
    tree = ElementTree.fromstring(OF_RUN.draw(run).files["breakdown.svg"])
    read = [text.text or "" for text in tree.iter(f"{SVG}text")]
    assert any(name in text for text in read)
    assert not [*tree.iter(f"{SVG}script")]
