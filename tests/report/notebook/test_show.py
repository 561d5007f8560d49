"""A run as a notebook shows it."""

import pytest

import nsysflow
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.report.notebook import html_of
from nsysflow.report.results import Results
from tests.analyses import analysed, few_reports, loaded
from tests.report.handmade import MS, device, results
from tests.report.notebook.read import tree, words

UNTRUSTED = '<script>alert("x")</script> & \N{HEBREW LETTER ALEF} ' + "x" * 5000


def test_a_notebook_shows_verdict_findings_accounting_and_timeline() -> None:
    read = words(analysed("nan_check-sync")._repr_html_())
    assert "compute-bound (84 %, mostly matmul); largest loss: waiting in a sync, 14 %" in read
    assert "save 520 us (14 %) sync in the loop: cudaStreamSynchronize in step/metrics" in read
    assert "compute 3.24 ms, 84 %" in read
    assert "Timeline GPU 0 step 1 step 2 idle" in read


@few_reports
def test_every_report_is_shown_in_well_formed_html_without_scripts(name: str) -> None:
    root = tree(analysed(name)._repr_html_())
    assert root.get("class") == "nsysflow"
    assert not [*root.iter("script")]
    assert len([*root.iter("rect")]) < 1000


def test_ranks_are_shown_together() -> None:
    run = Results([analysed("ddp-bucketed-rank0"), analysed("ddp-bucketed-rank1")])
    read = words(run._repr_html_())
    assert read.count("stream 17") == 2
    assert "arrivals : per collective" in read


def test_an_analysis_lists_its_tables_and_not_those_of_runs() -> None:
    listed = [each.text for each in tree(analysed("nan_check-sync")._repr_html_()).iter("code")]
    names = [name for name, each in TABLES.items() if each.of == "report" or name == "findings"]
    assert listed == names


def test_names_from_the_program_are_text() -> None:
    run = results(accounting=[device(9 * MS, name=UNTRUSTED, host_ns=MS)])
    html = html_of(run)
    assert "<script" not in html
    assert '<script>alert("x")</script> &' in words(html)


def test_without_gpu_work_there_are_no_pictures() -> None:
    html = html_of(results())
    assert "no GPU work" in words(html)
    assert not [*tree(html).iter("svg")]


def test_an_analysis_that_cannot_be_made_says_why() -> None:
    analysis = nsysflow.analyze(loaded("nan_check-sync"), nsysflow.Options(range="nope"))
    assert analysis._repr_html_().startswith(
        "<b>Analysis of nan_check-sync</b><br>no range &#x27;nope&#x27;"
    )


@pytest.mark.parametrize("name", ["nan_check-sync", "h200-train"])
def test_it_is_the_same_each_time(name: str) -> None:
    assert analysed(name)._repr_html_() == analysed(name)._repr_html_()
