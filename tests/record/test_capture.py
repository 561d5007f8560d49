"""Each run gets its own folder; other files are never overwritten, not even on a full disk."""

import sys
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.record.capture import make_run_folder, make_unused_folder
from nsysflow.runtime.inject.nsysflow_hook import HOOKED
from tests.disks import full_disk, names
from tests.record.fake import command, profiled
from tests.unprivileged import unprivileged

pytestmark = pytest.mark.usefixtures("machine_with_gpu")


def test_unnamed_runs_are_numbered_after_their_script(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Mock(now=Mock(return_value=datetime(2026, 11, 20, 10, 0, 0)))
    monkeypatch.setattr("nsysflow.cli.request.datetime", clock)
    Path("train.py").write_text("print('ran')")
    for _ in range(3):
        ran = profiled("--no-analyze", "--", sys.executable, "train.py")
        assert ran.exit_code == 0, ran.stderr
    made = [f"train-20261120-100000{suffix}" for suffix in ("", "-2", "-3")]
    assert sorted(path.name for path in Path().glob("train-*")) == made
    assert all((Path(name) / "report.sqlite").is_file() for name in made)
    assert f"wrote {made[2]}: manifest.json" in ran.stderr


@pytest.mark.parametrize(
    ("held", "force", "said"),
    [
        ({"notes.txt": "mine"}, [], "or replace an earlier run with --force"),
        ({"manifest.json": '{"tool": "nsysflow", "schema": 99}'}, [], "earlier run with --force"),
        ({"report.sqlite": "mine", "mlflow.sqlite": ""}, ["--force"], "is not a run of nsysflow"),
        ({"output.log": "mine"}, ["--force"], "is not a run of nsysflow"),
    ],
)
def test_only_a_run_is_replaced_if_asked(held: dict[str, str], force: list[str], said: str) -> None:
    Path("out").mkdir()
    for name, text in held.items():
        Path("out", name).write_text(text)
    refused = profiled("-o", "out", *force, *command())
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == held


def test_force_removes_a_run_of_any_version_and_nothing_else(two_ranks: tuple[str, ...]) -> None:
    profiled("-o", "out", "--no-analyze", *two_ranks)
    assert len(list(Path("out").glob("rank*"))) == 4
    Path("out/manifest.json").write_text('{"tool": "nsysflow", "schema": 99}')
    left = ("report.json", "gaps.csv", "child-7.json", HOOKED)
    for name in (*left, "notes.txt"):
        Path("out", name).write_text("left")
    assert profiled("-o", "out", "--force", "--no-analyze", *command()).exit_code == 0
    assert not [name for name in left if Path("out", name).exists()]
    assert not list(Path("out").glob("rank*"))
    assert Path("out/notes.txt").read_text() == "left"
    assert Path("out/report.sqlite").read_bytes()[:6] == b"SQLite"


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with unprivileged() as folder:
        folder.chmod(0o500)
        for make in (
            lambda: make_run_folder(folder / "out", force=False),
            lambda: make_run_folder(folder, force=True),
            lambda: make_unused_folder(folder / "out"),
        ):
            with pytest.raises(OutputError, match="Permission denied; nothing was"):
                make()


def test_a_full_disk_leaves_no_manifest_and_says_what_to_do(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as disk:
        done = profiled("-o", str(disk / "run"), *command())
        assert done.exit_code == 1
        assert "No space left on device. Make room" in done.stderr
        assert "manifest.json" not in names(disk / "run")
