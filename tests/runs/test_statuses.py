"""The status files of a run's processes are read in order and then removed."""

from pathlib import Path

import pytest

from nsysflow.runs.manifest import Annotation
from nsysflow.runs.statuses import take_annotation, take_statuses
from nsysflow.runtime.child_status import ChildStatus, write_status
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED


def test_statuses_are_read_by_rank_and_pid_and_their_files_removed(tmp_path: Path) -> None:
    written = [
        ChildStatus(pid=pid, rank=rank, versions={"python": "3.12"}, config={"options": {"n": 1}})
        for pid, rank in ((9, None), (11, None), (3, 1))
    ]
    for status in reversed(written):
        write_status(tmp_path, status)
    assert take_statuses(tmp_path) == written
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_file_does_not_affect_the_others(tmp_path: Path) -> None:
    good = ChildStatus(pid=5, versions={})
    write_status(tmp_path, good)
    for name, text in (("child-6.json", "{"), ("child-7.json", '{"pid": "7"}')):
        (tmp_path / name).write_text(text)
    assert take_statuses(tmp_path) == [good]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child-6.json", "child-7.json"]


@pytest.mark.parametrize(
    ("left", "found"),
    [
        ({}, Annotation(hooked=False, torch=False)),
        ({HOOKED: ""}, Annotation(hooked=True, torch=False)),
        ({HOOKED: "", ANNOTATED: ""}, Annotation(hooked=True, torch=True)),
        ({HOOKED: "", NOT_ANNOTATED: "a"}, Annotation(hooked=True, torch=False, problem="a")),
    ],
)
def test_what_became_of_the_annotation_is_read_and_its_files_removed(
    tmp_path: Path, left: dict[str, str], found: Annotation
) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text)
    assert take_annotation(tmp_path) == found
    assert list(tmp_path.iterdir()) == []
