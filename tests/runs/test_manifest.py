"""A run's manifest, and the statuses of its processes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from nsysflow.base.errors import Damaged, ReportError
from nsysflow.runs.manifest import (
    FILE,
    Annotation,
    decode,
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


def test_another_programs_manifest_is_not_a_run(tmp_path: Path) -> None:
    for text in ('{"name": "webpack"}', '["a", "list"]'):
        (tmp_path / FILE).write_text(text)
        assert read_manifest(tmp_path) is None
        assert not is_run(tmp_path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"children": None}, "it.children is None"),
        ({"wall_ns": "5"}, "it.wall_ns is '5', not int"),
        ({"on": "gpu"}, "it.on is 'gpu'"),
    ],
)
def test_a_manifest_with_a_wrong_value_is_an_error_that_names_it(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    document = {"tool": "nsysflow", **asdict(RUN), **changed}
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(Damaged) as caught:
        read_manifest(tmp_path)
    assert caught.value.seen.startswith(f"{tmp_path / FILE} cannot be understood: {said}")
    assert caught.value.command == f"ls {tmp_path}"
    assert is_run(tmp_path)


def test_a_manifest_that_is_not_json_is_an_error_and_not_known_to_be_ours(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("half of")
    with pytest.raises(Damaged, match=r"manifest\.json cannot be understood"):
        read_manifest(tmp_path)
    assert not is_run(tmp_path)


def test_a_folder_that_may_not_be_entered_is_not_a_run() -> None:
    with unprivileged() as folder:
        (folder / "run").mkdir(mode=0)
        assert read_manifest(folder / "run") is None
        assert not is_run(folder / "run")


def test_a_manifest_that_may_not_be_read_is_an_error() -> None:
    with unprivileged() as folder:
        (folder / FILE).touch(mode=0)
        with pytest.raises(ReportError, match=f"chmod u\\+r {folder / FILE}"):
            read_manifest(folder)


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


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: int


@dataclass(frozen=True, kw_only=True)
class Outer:
    text: str
    ratio: float
    kind: Literal["a", "b"]
    inner: Inner | None
    many: tuple[Inner, ...]
    by_name: Mapping[str, int]
    anything: dict[str, Any] | None = None
    on: bool = False
    words: tuple[str, ...] = field(default=("x",))


WHOLE = Outer(
    text="t",
    ratio=0.5,
    kind="b",
    inner=Inner(number=1),
    many=(Inner(number=2),),
    by_name={"x": 3},
    anything={"y": [None]},
)


def document(**changed: object) -> dict[str, object]:
    return asdict(WHOLE) | {"many": [{"number": 2}], "words": ["x"]} | changed


def test_what_was_written_comes_back() -> None:
    assert decode(Outer, document()) == WHOLE


def test_unknown_keys_are_dropped_and_defaults_filled_in() -> None:
    found = document(later="new")
    del found["on"], found["words"], found["anything"]
    assert decode(Outer, found) == Outer(**{**vars(WHOLE), "anything": None})


def test_a_whole_number_is_a_float_too() -> None:
    assert decode(Outer, document(ratio=2)).ratio == 2.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"text": 1}, r"^it\.text is 1, not str$"),
        ({"ratio": "1"}, r"^it\.ratio is '1', not float$"),
        ({"on": 1}, r"^it\.on is 1, not bool$"),
        ({"kind": "c"}, r"^it\.kind is 'c', not "),
        ({"inner": {"number": True}}, r"^it\.inner\.number is True, not int$"),
        ({"inner": {}}, r"^it\.inner has no number$"),
        ({"inner": 1}, r"^it\.inner is 1, not Inner$"),
        ({"many": [{"number": 1}, 2]}, r"^it\.many\[1\] is 2, not Inner$"),
        ({"many": {}}, r"^it\.many is \{\}, not "),
        ({"by_name": {"x": "3"}}, r"^it\.by_name\.x is '3', not int$"),
        ({"words": ["y", None]}, r"^it\.words\[1\] is None, not str$"),
    ],
)
def test_a_value_of_another_type_is_named(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(Outer, document(**changed), name="it")


@pytest.mark.parametrize("found", [[], None, "text", 1])
def test_what_is_not_an_object_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="not Outer"):
        decode(Outer, found)
