"""A run's manifest, and the statuses of its processes."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nsysflow.base.errors import Damaged, ReportError
from nsysflow.runs.manifest import (
    FILE,
    Annotation,
    is_run,
    read_manifest,
    take_annotation,
    take_statuses,
    write_manifest,
)
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.process import ChildStatus, write_status
from tests.runs.runs import RUN
from tests.unprivileged import unprivileged


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    annotation = Annotation(hooked=True, torch=False, problem="no")
    for run in (
        RUN,
        replace(RUN, git=None, children=(), flops_per_step=1e9, flops_dtype="bf16", own=("vllm",)),
        replace(RUN, annotation=annotation, delay_s=0.5, duration_s=2.0, stopped=True),
    ):
        write_manifest(tmp_path, run)
        assert read_manifest(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_program_was_killed_if_torch_was_annotated_and_no_process_ended_by_itself() -> None:
    annotated = replace(RUN, annotation=Annotation(hooked=True, torch=True))
    ended, killed = (
        tuple(replace(each, at_end=end) for each in RUN.children) for end in (True, False)
    )
    assert RUN.children
    assert not replace(annotated, children=ended).killed
    assert replace(annotated, children=killed).killed
    assert replace(annotated, children=()).killed
    assert not replace(RUN, annotation=None, children=()).killed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"children": None}, "Expected `array`, got `null` - at `$.children`"),
        ({"children": [{"pid": True}]}, "Expected `int`, got `bool` - at `$.children[0].pid`"),
        ({"on": "gpu"}, "Invalid enum value 'gpu' - at `$.on`"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    document = {"tool": "nsysflow", **asdict(RUN), **changed}
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(Damaged) as caught:
        read_manifest(tmp_path)
    assert caught.value.seen.startswith(f"{tmp_path / FILE} cannot be understood: {said}")
    assert caught.value.command == f"ls {tmp_path}"
    assert is_run(tmp_path)


def test_unknown_keys_are_dropped_and_defaults_filled_in(tmp_path: Path) -> None:
    written = {"tool": "nsysflow", **asdict(RUN), "later": "new", "delay_s": 2}
    for key in ("own", "stopped", "flops_per_step", "flops_dtype"):
        del written[key]
    (tmp_path / FILE).write_text(json.dumps(written))
    assert read_manifest(tmp_path) == replace(RUN, delay_s=2.0)


def test_a_manifest_that_may_not_be_read_is_an_error_and_a_closed_folder_not_a_run() -> None:
    with unprivileged() as folder:
        (folder / "run").mkdir(mode=0)
        assert read_manifest(folder / "run") is None
        assert not is_run(folder / "run")
        (folder / FILE).touch(mode=0)
        with pytest.raises(ReportError, match=f"chmod u\\+r {folder / FILE}"):
            read_manifest(folder)


def test_statuses_are_read_by_rank_and_pid_and_readable_ones_removed(tmp_path: Path) -> None:
    written = [
        ChildStatus(pid=pid, rank=rank, versions={"python": "3.12"}, config={"options": {"n": 1}})
        for pid, rank in ((9, None), (11, None), (3, 1))
    ]
    for status in reversed(written):
        write_status(tmp_path, status)
    unreadable = {"child-6.json": "{", "child-7.json": '{"pid": "7"}'}
    for name, text in unreadable.items():
        (tmp_path / name).write_text(text)
    assert take_statuses(tmp_path) == written
    assert {path.name for path in tmp_path.iterdir()} == unreadable.keys()


@pytest.mark.parametrize(
    ("left", "found"),
    [
        ({}, Annotation(hooked=False, torch=False)),
        ({HOOKED: ""}, Annotation(hooked=True, torch=False)),
        ({HOOKED: "", ANNOTATED: ""}, Annotation(hooked=True, torch=True)),
        ({HOOKED: "", NOT_ANNOTATED: "a"}, Annotation(hooked=True, torch=False, problem="a")),
    ],
)
def test_the_annotation_is_taken(tmp_path: Path, left: dict[str, str], found: Annotation) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text)
    assert take_annotation(tmp_path) == found
    assert list(tmp_path.iterdir()) == []
