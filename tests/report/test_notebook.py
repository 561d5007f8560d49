"""What a notebook shows."""

from base64 import b64decode
from io import BytesIO
from typing import Final

import pytest
from PIL import Image

import nsysflow
from nsysflow.report.figures.drawing import OF_RUN
from nsysflow.report.notebook import LABEL, WIDTH, gpu_time_bars, notebook_html
from nsysflow.report.pictures import ALL
from nsysflow.report.results import Results
from tests.analyses import OF_REPORT, analysed, few_reports, loaded, run_of
from tests.report.handmade import MS, device, results
from tests.report.notebook_html import boxes, title_of, tree, words
from tests.reports import PACKED


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


def test_a_bar_says_what_it_is() -> None:
    titles = [title_of(each) for each in boxes(gpu_time_bars(run_of("nan_check-sync")))]
    assert titles[0] == "compute 3.24 ms, 84 %"
    assert titles[2] == "idle: waiting in a sync 520 us, 14 %"


def test_the_legend_of_several_gpus_has_no_figures() -> None:
    run = Results([analysed("ddp-bucketed-rank0"), analysed("ddp-bucketed-rank1")])
    assert "compute</span>" in gpu_time_bars(run)


def test_without_gpu_work_there_is_no_bar() -> None:
    assert gpu_time_bars(results()) == ""


PNG: Final = "idle-over-steps.png"

UNTRUSTED = '<script>alert("x")</script> & \N{HEBREW LETTER ALEF} ' + "x" * 5000


def test_a_notebook_shows_verdict_findings_accounting_and_steps() -> None:
    read = words(analysed("nan_check-sync")._repr_html_())
    assert "compute-bound (84 %, mostly matmul); largest loss: waiting in a sync, 14 %" in read
    assert "save 520 us (14 %) sync in the loop: cudaStreamSynchronize in step/metrics" in read
    assert "compute 3.24 ms, 84 %" in read
    assert "queue delay 57.2 us, 1.5 % Steps Tables" in read


@few_reports
def test_every_report_is_shown_in_well_formed_html_without_scripts(name: str) -> None:
    root = tree(analysed(name)._repr_html_())
    assert root.get("class") == "nsysflow"
    assert not [*root.iter("script")]
    assert len([*root.iter("rect")]) < 100


def test_ranks_are_shown_together() -> None:
    run = nsysflow.analyze([PACKED["ddp-bucketed-rank0"], PACKED["ddp-bucketed-rank1"]])
    read = words(run._repr_html_())
    assert [read.count(f"GPU {gpu}") for gpu in (0, 1)] == [1, 1]
    assert "arrivals : per collective" in read


def test_an_analysis_lists_its_tables_and_not_those_of_runs() -> None:
    listed = [each.text for each in tree(analysed("nan_check-sync")._repr_html_()).iter("code")]
    names = ["findings", *OF_REPORT]
    assert listed == names


def test_names_from_the_program_are_text() -> None:
    run = results(accounting=[device(9 * MS, name=UNTRUSTED, host_ns=MS)])
    html = notebook_html(run)
    assert "<script" not in html
    assert '<script>alert("x")</script> &' in words(html)


def test_without_gpu_work_there_are_no_pictures() -> None:
    html = notebook_html(results())
    assert "no GPU work" in words(html)
    assert not [*tree(html).iter("svg"), *tree(html).iter("img")]


def test_an_analysis_that_cannot_be_made_says_why() -> None:
    analysis = nsysflow.analyze(loaded("nan_check-sync"), nsysflow.Options(range="nope"))
    assert analysis._repr_html_().startswith(
        "<b>Analysis of nan_check-sync</b><br>no range &#x27;nope&#x27;"
    )


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-train"])
def test_it_is_the_same_each_time(name: str) -> None:
    assert analysed(name)._repr_html_() == analysed(name)._repr_html_()


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


@few_reports
def test_the_picture_of_steps_is_that_of_the_figures(name: str) -> None:
    picture = picture_of(analysed(name)._repr_html_())
    drawn = OF_RUN.draw(run_of(name))
    assert (picture is None) == ("idle-over-steps" in drawn.empty)
    if picture is not None:
        assert picture.startswith(b"\x89PNG")
        small, large = (Image.open(BytesIO(png)) for png in (picture, drawn.files[PNG]))
        assert [2 * side for side in small.size] == pytest.approx(large.size, abs=2)
        assert len(picture) < 100_000


def test_without_matplotlib_there_is_no_picture_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.report.notebook.find_spec", lambda _: None)
    html = analysed("nan_check-sync")._repr_html_()
    assert picture_of(html) is None
    assert "Steps" not in words(html)
