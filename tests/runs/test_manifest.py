"""A run's folder is known by its manifest."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nsysflow.base.errors import Damaged, ReportError
from nsysflow.runs.manifest import FILE, Annotation, is_run, read_manifest, write_manifest
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
