"""The flame graph of a run."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import SelectionError
from nsysflow.report.flamegraph import draw
from tests import tiny
from tests.oracle.model import Frame, PlainTrace, Sample, to_trace
from tests.report.handmade import Handmade, Results, renamed
from tests.report.test_flamegraph import ROWS, idle_stacks

RUN = Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})


def test_the_ending_says_which_form_a_file_has() -> None:
    assert draw(Results([RUN]), Path("idle.svg")).startswith("<svg ")
    assert json.loads(draw(Results([RUN]), Path("idle.json")))["name"] == "run.sqlite"


def test_the_time_is_that_of_a_judged_step() -> None:
    run = replace(RUN, step_counts={("run.sqlite", 0): 4})
    assert "25.0 ms per step" in draw(Results([run]), Path("idle.svg"))


def test_ranks_are_drawn_beside_each_other() -> None:
    drawn = draw(Results([RUN, renamed(RUN, "rank1.sqlite")]), Path("idle.svg"))
    assert ">run.sqlite\n100 ms, 50 %<" in drawn


def test_the_program_s_own_functions_differ_from_those_of_libraries() -> None:
    call, main = Frame("/x/site-packages/torch/nn.py", 1, "call"), Frame("/me/train.py", 2, "main")
    trace = to_trace(PlainTrace(samples=(Sample(5, tiny.MAIN, (call, main)),)))
    rows = idle_stacks(("", "host", ("main (train.py:2)", "call (torch/nn.py:1)"), 1))
    drawn = draw(Results([Handmade(tables={"idle_stacks": rows}, trace=trace)]), Path("idle.svg"))
    kinds = dict(re.findall(r'class="box (\w+)".*<title>(\w+) \(', drawn))
    assert kinds == {"own": "main", "library": "call"}


def test_a_report_without_samples_names_how_to_record_them() -> None:
    with pytest.raises(SelectionError, match="has no Python samples") as raised:
        draw(Results([Handmade(tables={})]), Path("idle.svg"))
    assert raised.value.command == "nsysflow profile --sample-python 1000 -- COMMAND"


def test_a_gpu_that_never_waits_for_the_host_leaves_nothing_to_draw() -> None:
    trace: Trace = tiny.trace_of(tiny.sample(5, "main"))
    with pytest.raises(SelectionError, match="no GPU waits for host code or launches"):
        draw(Results([Handmade(tables={}, trace=trace)]), Path("idle.svg"))
