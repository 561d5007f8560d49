from base64 import b64decode
from io import BytesIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from PIL import Image

import nsysflow
from nsysflow.report.figures.drawing import screen_png
from nsysflow.report.figures.steps import draw_idle_over_steps
from nsysflow.report.notebook import LABEL, WIDTH, gpu_time_bars, notebook_html
from nsysflow.report.pictures import ALL
from tests.analyses import analysed, few_reports, loaded, run_of
from tests.report.figures.drawn import some_reports
from tests.report.handmade import MS, device, results


def tree(html: str) -> Element:
    """The HTML as a tree. Each tag that is not closed is an error."""
    return ElementTree.fromstring(html.replace("<br>", "<br/>"))


def words(html: str) -> str:
    """All that can be read, without styles."""
    root = tree(html)
    for style in root.iter("style"):
        style.text = ""
    return " ".join(" ".join(root.itertext()).split())


def boxes(html: str) -> list[Element]:
    """The boxes of pictures, without those of legends."""
    every = tree(f"<div>{html}</div>").iter("svg")
    return [box for each in every if each.get("role") == "img" for box in each.iter("rect")]


@few_reports
def test_bars_are_as_wide_as_the_parts_of_the_accounting(name: str) -> None:
    judged = run_of(name).judged
    rows = judged.accounting.rows(named=True)
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    wanted = [
        row[part.column] / count / longest_ns * (WIDTH - LABEL)
        for row, count in zip(rows, steps, strict=True)
        for part in ALL
        if row[part.column]
    ]
    found = [float(each.attrib["width"]) for each in boxes(gpu_time_bars(run_of(name)))]
    assert found == pytest.approx(wanted, abs=0.01)


def test_names_from_the_program_are_text() -> None:
    untrusted = '<script>alert("x")</script> & \N{HEBREW LETTER ALEF} ' + "x" * 5000
    html = notebook_html(results(accounting=[device(9 * MS, name=untrusted, host_ns=MS)]))
    assert "<script" not in html
    assert '<script>alert("x")</script> &' in words(html)


def test_without_gpu_work_there_are_no_pictures() -> None:
    assert gpu_time_bars(results()) == ""
    html = notebook_html(results())
    assert "No GPU work" in words(html)
    assert not [*tree(html).iter("svg"), *tree(html).iter("img")]


def test_an_analysis_that_cannot_be_made_says_why() -> None:
    analysis = nsysflow.analyze(loaded("nan_check-sync"), nsysflow.Options(range="nope"))
    assert analysis._repr_html_().startswith(
        "<b>Analysis of nan_check-sync</b><br>no range &#x27;nope&#x27;"
    )


def picture_of(html: str) -> bytes | None:
    """The figure in a page, as it is; None without one."""
    images = [*tree(html).iter("img")]
    if not images:
        return None
    (image,) = images
    kind, _, content = image.attrib["src"].partition(",")
    assert kind == "data:image/png;base64"
    assert image.attrib["alt"] == "idle time of each step, by cause"
    return b64decode(content)


@some_reports
def test_a_report_is_well_formed_html_without_scripts_with_the_picture_of_its_steps(
    name: str,
) -> None:
    html = analysed(name)._repr_html_()
    root, picture = tree(html), picture_of(html)
    assert root.get("class") == "nsysflow"
    assert not [*root.iter("script")]
    assert len([*root.iter("rect")]) < 100
    assert picture == screen_png(draw_idle_over_steps, run_of(name))
    if picture is not None:
        assert Image.open(BytesIO(picture)).width in (525, 1080)  # one column, or two
        assert len(picture) < 100_000


def test_without_matplotlib_there_is_no_picture_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.report.notebook.find_spec", lambda _: None)
    html = analysed("nan_check-sync")._repr_html_()
    assert picture_of(html) is None
    assert "Steps" not in words(html)
