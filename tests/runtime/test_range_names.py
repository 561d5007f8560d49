"""A range keeps its name in a trace of torch.profiler, which holds only printable ASCII."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.notes import NoteKind
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR
from nsysflow.runtime.range_names import ascii_name, original_name
from tests.runtime.programs import run_torch

SAFE = set(string.ascii_letters + string.digits + string.punctuation + " ") - set('"\\')
CHARACTERS = st.characters(exclude_categories=["Cs"])  # half of a surrogate pair is no character
names = st.text(CHARACTERS | st.sampled_from('<U+>09AF"\\'), max_size=8)

UNUSUAL = [
    *("für", "日本", "\U0001f600", 'a "quote"', "C:\\new\\u"),
    *("tab\there", "<U+FC>", "plain/x y"),
]
NAMES_RANGES = f"""
import torch
from nsysflow import region, steps
for _ in steps(range(1)):
    for name in {UNUSUAL!a}:
        with region(name):
            torch.ones(2)
"""


@given(names)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    assert original_name(ascii_name(name)) == name


@given(names)
def test_an_ascii_name_has_only_characters_that_torch_keeps(name: str) -> None:
    assert set(ascii_name(name)) <= SAFE


@given(st.text(sorted(SAFE - {"<"})))
def test_a_name_that_torch_keeps_is_unchanged(name: str) -> None:
    assert ascii_name(name) == name


@given(st.text("<U+>0DF9", max_size=12))
@example("<U+D800>")
@example("<U+110000>")
def test_any_text_in_a_trace_is_read_as_valid_characters(text: str) -> None:
    assert len(original_name(text).encode()) <= len(text)


@pytest.mark.slow
def test_ranges_of_any_name_are_in_the_trace_of_a_run(tmp_path: Path) -> None:
    ran = run_torch(NAMES_RANGES, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "0:0:1"})
    assert ran.returncode == 0, ran.stderr
    trace = nsysflow.load(tmp_path / "report.pt.trace.json.gz")
    assert set(trace.ranges["name"].cast(str)) == {"step", "data", *UNUSUAL}
    assert not any(note.kind == NoteKind.NAMELESS_RANGES for note in trace.notes)


@pytest.mark.parametrize(("ours", "name"), [(True, "ü"), (False, "<U+FC>")])
def test_names_are_unescaped_only_in_a_trace_of_ours(tmp_path: Path, ours: bool, name: str) -> None:
    what = {"ph": "X", "cat": "user_annotation", "pid": 8, "tid": 8, "ts": 1, "dur": 2}
    events = [{**what, "name": "<U+FC>"}, {**what, "name": "unknown"}]
    window = {"nsysflow": {"capture": "0:0:1", "unprofiled_step_ns": None}} if ours else {}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, **window}))
    trace = nsysflow.load(path)
    assert trace.ranges["name"].to_list() == [name, "unknown"]
    assert any(note.kind == NoteKind.NAMELESS_RANGES for note in trace.notes)
