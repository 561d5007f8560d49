"""How traces and analyses show themselves."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import Displayable, facts_of, gpu_names
from nsysflow.base.errors import SelectionError
from tests.analyses import analysed, loaded
from tests.report.handmade import MS, device, frame


def test_a_trace_says_who_wrote_it_and_how_much_there_is_and_shows_no_frame() -> None:
    assert repr(loaded("nan_check-sync")) == (
        "<Trace of nan_check-sync: Nsight Systems 2025.3.2.0, schema 3.20.3, NVIDIA H200,"
        " 190 GPU operations, 525 API calls, 35 NVTX ranges>"
    )


def test_an_analysis_says_gpu_window_busy_idle_and_steps() -> None:
    assert repr(analysed("nan_check-sync")) == (
        "<Analysis of nan_check-sync: NVIDIA H200, window 20.5 ms, 79 % busy, 21 % idle, 5 steps>"
    )


def test_an_analysis_that_cannot_be_made_says_why() -> None:
    analysis = nsysflow.analyze(loaded("nan_check-sync"), Options(range="nope"))
    assert repr(analysis).startswith("<Analysis of nan_check-sync: no range 'nope'")


class Thing(Displayable):
    """Something with two facts, or none."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def _name(self) -> str:
        return "<x>"

    def _facts(self) -> list[str]:
        if self.error:
            raise self.error
        return ["a & b", "c"]


@pytest.mark.parametrize("page", [None, lambda thing: f"page of {thing._name()}"])
def test_a_notebook_shows_the_page_and_without_one_the_facts(
    page: Callable[[Any], str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Displayable, "page", page and staticmethod(page))
    facts = "<b>Thing of &lt;x&gt;</b><br>a &amp; b<br>c"
    assert Thing()._repr_html_() == ("page of <x>" if page else facts)
    assert repr(Thing()) == "<Thing of <x>: a & b, c>"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SelectionError("no <x>"), "<Thing of <x>: no <x>>"),
        (KeyError("<x>"), "<Thing of ?: KeyError: '<x>'>"),
    ],
)
def test_what_cannot_be_shown_says_why_and_never_fails(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Displayable, "page", None)
    assert repr(Thing(error)) == text
    assert "<x>" not in Thing(error)._repr_html_()
    assert "&lt;x&gt;" in Thing(error)._repr_html_()


def test_a_run_that_was_never_made_shows_itself_in_a_debugger() -> None:
    for kind in (nsysflow.Analysis, nsysflow.Results):
        assert repr(kind.__new__(kind)).startswith(f"<{kind.__name__} of ?: AttributeError")


def test_gpus_of_one_name_are_counted() -> None:
    assert gpu_names(pl.Series(["H200", "H200", None, "T4"])) == "2 x H200, T4"
    assert gpu_names(pl.Series(["H200"] * 1024)) == "1,024 x H200"


def test_several_gpus_are_summed_and_ranks_take_their_steps_together() -> None:
    rows = [device(100 * MS, device=at, host_ns=(20 + 40 * at) * MS) for at in (0, 1)]
    steps = [{"step": step, "process": process} for step in (0, 1) for process in (7, 8)]
    assert facts_of(frame("accounting", *rows), frame("steps", *steps)) == [
        "2 x NVIDIA H200", "window 200.0 ms together", "60 % busy", "40 % idle", "2 steps",
    ]  # fmt: skip


def test_without_gpu_work_there_is_nothing_else_to_say() -> None:
    assert facts_of(frame("accounting"), frame("steps")) == ["no GPU work"]


def test_the_help_of_an_analysis_lists_its_tables() -> None:
    doc = nsysflow.Analysis.__doc__ or ""
    assert "gap_summary: idle time by place, cause and culprit." in doc
    assert "arrivals:" not in doc
