"""Runs with a program in nsys's place, and with torch.profiler; and runs that are refused before
anything starts, as they cannot work."""

import csv
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.nsys.installations import Places
from nsysflow.record.capture import make_run_folder, make_unused_folder
from nsysflow.runtime.inject.nsysflow_hook import HOOKED
from nsysflow.runtime.protocol import RUN_FOLDER
from tests.cli.running import run
from tests.disks import full_disk, names
from tests.nsys.fakes import places
from tests.record.fake import NO_GPU, command, fake_torchrun, manifest_of, profiled
from tests.reports import DATA
from tests.unprivileged import unprivileged

pytestmark = pytest.mark.usefixtures("machine_with_gpu")


def test_a_run_leaves_its_report_export_manifest_and_tables_and_prints_the_page() -> None:
    ran = profiled("-o", "out", *command())
    assert "Compute-bound: the GPU computes 81 %" in ran.stdout
    assert "epoch 1" in ran.stderr
    made = {*names(Path("out"))}
    assert {"manifest.json", "output.log", "report.nsys-rep", "report.sqlite"} < made
    assert {"summary.md", "report.json", "gaps.csv", "phases.csv"} < made
    assert not [name for name in made if name.startswith((".", "child"))]


LEAVES_HISTORY: Final = f"""
import json, os, pathlib
rank = os.environ.get("LOCAL_RANK")
left = {{"pid": 7, "rank": rank and int(rank), "frames": [], "stacks": [], "devices": []}}
folder = pathlib.Path(os.environ["{RUN_FOLDER}"])
(folder / f"memory-1{{rank or 0}}.json").write_text(json.dumps(left))
(folder / "memory-9.json").write_text("half")
"""


@pytest.mark.parametrize(
    ("ranks", "reports"), [((), ["report"]), (("--nproc", "2"), ["rank0", "rank1"])]
)
def test_what_processes_leave_of_memory_is_in_the_report_of_their_rank(
    ranks: tuple[str, ...], reports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torchrun(tmp_path, monkeypatch)
    words = ("-o", "out", "--no-analyze", "--no-annotate", "--memory", *ranks, "--")
    profiled(*words, "env", sys.executable, "-S", "-c", LEAVES_HISTORY)
    for name in reports:
        with closing(sqlite3.connect(f"out/{name}.sqlite")) as db:
            assert [pid for pid, _ in db.execute("SELECT * FROM NSYSFLOW_MEMORY")] == [7]
    assert not [*Path("out").glob("memory-*")]
    nothing = profiled("--force", *words, "env", sys.executable, "-S", "-c", "")
    assert "the report has only what CUDA allocated" in nothing.stderr


def test_the_manifest_leaves_out_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "hush-hush")
    ran = profiled("-o", "out", "--no-analyze", "--backtrace", "all", *command())
    assert ran.stdout == ""
    assert Path("out/report.sqlite").is_file()
    assert not Path("out/report.json").exists()
    manifest = manifest_of()
    assert manifest.command == tuple(command()[1:])
    assert manifest.argv[-len(manifest.command) :] == manifest.command
    assert (manifest.exit_code, manifest.interrupted) == (0, False)
    assert (manifest.collector, manifest.on, manifest.capture) == ("nsys", "cuda", None)
    assert (manifest.backtraces, manifest.sample_python) == ("all", 1000)
    assert manifest.versions["nsys"] == "2025.3.1.90-1v0"
    assert manifest.versions["driver"] == "580.159"
    assert manifest.gpus == ("NVIDIA H200",)
    assert "hush-hush" not in Path("out/manifest.json").read_text()


def test_the_settings_of_analyze_narrow_the_page_of_a_run() -> None:
    profiled("-o", "plain", "--no-analyze", *command())
    Path("nsysflow.toml").write_text("[analyze]\nsteps = ['1:3']\ntop = 1\ntable = 'gaps'\n")
    narrowed = profiled("-o", "out", *command()).stdout
    asked = ["analyze", "plain", "--no-files", "--steps", "1:3", "--top", "1"]
    Path("nsysflow.toml").unlink()
    again = run(*asked).stdout.replace("explain 1 plain", "explain 1 out")
    assert narrowed.splitlines()[1:] == again.splitlines()[1:]
    assert len(Path("out/steps.csv").read_text().splitlines()) == 1 + 2


def test_a_mistake_in_the_settings_of_analyze_is_reported_before_anything_runs() -> None:
    Path("nsysflow.toml").write_text("[analyze]\nsteps = ['all']\n")
    ran = profiled("-o", "out", *command(), code=1)
    assert "nsysflow.toml: steps in [analyze]: 'all' is not A:B" in ran.stderr
    assert not Path("out").exists()
    for skipped in ("--dry-run", "--no-analyze"):
        profiled("-o", "out", skipped, *command())


@pytest.mark.parametrize("code", [0, 7])
def test_a_failed_analysis_says_that_the_run_is_kept(code: int) -> None:
    Path("nsysflow.toml").write_text("[analyze]\nrange = 'no such range'\n")
    ran = profiled("-o", "my run", *command(code), code=code or 1)
    wrote, _, after = ran.stderr.partition("no range 'no such range'")
    assert "wrote my run: manifest.json, report.sqlite" in wrote
    assert "The run is kept. Analyse it again:\n  nsysflow analyze 'my run'\n" in after
    assert "Traceback" not in ran.stderr


def test_ranks_are_analysed_together_and_their_rows_stay_apart(two_ranks: tuple[str, ...]) -> None:
    profiled("-o", "out", *two_ranks)
    assert manifest_of().reports == ("rank0.sqlite", "rank1.sqlite")
    devices = json.loads(Path("out/report.json").read_text())["devices"]
    assert [device["report"] for device in devices] == ["rank0", "rank1"]


def test_flops_are_kept_with_the_run_and_used_when_it_is_analysed_again() -> None:
    asked = ("--flops-per-step", "1e9", "--flops-dtype", "tf32", "--no-analyze")
    profiled("-o", "out", *asked, *command())
    assert (manifest_of().flops_per_step, manifest_of().flops_dtype) == (1e9, "tf32")
    table = ["analyze", "out", "--table", "mfu", "--format", "csv"]
    for words, flops in (([], 1e9), (["--flops-per-step", "2e9"], 2e9)):
        rows = csv.DictReader(run(*table, *words).stdout.splitlines())
        (step,) = (row for row in rows if row["path"] == "step")
        assert (float(step["flops"]), step["unit"]) == (flops, "tf32")


def test_ctrl_c_exits_with_130_and_keeps_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("nsysflow.runs.analyze.analyze_reports", interrupted)
    ran = profiled("-o", "out", *command(), code=130)
    assert ran.stderr.endswith("The run is kept. Analyse it again:\n  nsysflow analyze out\n")
    monkeypatch.setattr("nsysflow.record.machine.gpus", interrupted)
    assert profiled("-o", "other", *command(), code=130).stderr == "nsysflow: interrupted\n"


def piped_to_nobody(*words: str) -> int:
    """The exit code of `nsysflow profile`, whose reader leaves before the first byte: of stdout
    and of stderr."""
    argv = [sys.executable, "-m", "nsysflow", "profile", *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ours:
        assert ours.stdout is not None
        ours.stdout.close()
        return ours.wait(timeout=60)


def test_a_reader_that_leaves_changes_neither_the_exit_code_nor_the_files() -> None:
    assert piped_to_nobody("--on", "cpu", "-o", "out", *command(7)) == 7
    assert Path("out/report.json").is_file()


LEAVES = """
import os, shutil, sys
for name in sys.argv[2:]:
    shutil.copy(sys.argv[1], os.path.join(os.environ["NSYSFLOW_RUN_FOLDER"], name))
"""
"""A program that leaves these traces."""


def test_traces_of_all_processes_are_reports_in_order_and_the_next_run_replaces_them() -> None:
    trace = str(DATA / "h200-kineto.pt.trace.json.gz")
    asked = ("--collector", "kineto", "--on", "cpu", "--force", "-o", "out", "--no-analyze")
    for ids in ([f"rank{rank}" for rank in range(11)], ["report", "report-97", "report-813"]):
        names = [f"{name}.pt.trace.json.gz" for name in ids]
        ran = profiled(*asked, "--", sys.executable, "-I", "-S", "-c", LEAVES, trace, *names)
        assert ", ".join(names) in ran.stderr
        assert manifest_of().reports == tuple(names)
        assert {path.name for path in Path("out").glob("*.gz")} == set(names)


def test_unnamed_runs_are_numbered_after_their_script(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Mock(now=Mock(return_value=datetime(2026, 11, 20, 10, 0, 0)))
    monkeypatch.setattr("nsysflow.cli.request.datetime", clock)
    Path("train.py").write_text("print('ran')")
    for _ in range(3):
        ran = profiled("--no-analyze", "--", sys.executable, "train.py")
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
    assert said in profiled("-o", "out", *force, *command(), code=1).stderr
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == held


def test_force_removes_a_run_of_any_version_and_nothing_else(two_ranks: tuple[str, ...]) -> None:
    profiled("-o", "out", "--no-analyze", *two_ranks)
    assert len(list(Path("out").glob("rank*"))) == 4
    Path("out/manifest.json").write_text('{"tool": "nsysflow", "schema": 99}')
    left = ("report.json", "gaps.csv", "child-7.json", "loader-7.bin", HOOKED)
    for name in (*left, "notes.txt"):
        Path("out", name).write_text("left")
    profiled("-o", "out", "--force", "--no-analyze", *command())
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
        done = profiled("-o", str(disk / "run"), *command(), code=1)
        assert "No space left on device. Make room" in done.stderr
        assert "manifest.json" not in names(disk / "run")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, machine_with_gpu: None) -> None:
    monkeypatch.setattr("nsysflow.record.machine.gpus", lambda: NO_GPU)


@pytest.fixture
def no_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_with_gpu: None) -> None:
    monkeypatch.setattr(Places, "here", lambda: places(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "nan_check"], "nan_check is a built-in workload"),
        (["nan_check", "--nproc", "2"], "needs 2 GPUs, one per rank, and this machine has 1"),
        (["ddp"], "Start fewer ranks:\n  nsysflow profile ddp --nproc 1\n"),
    ],
)
def test_what_cannot_be_started_is_an_error_that_says_what_can(words: list[str], said: str) -> None:
    assert said in profiled(*words, code=1).stderr
    assert not list(Path().iterdir())


@pytest.mark.usefixtures("no_nsys", "no_gpu")
@pytest.mark.parametrize("on", ["cuda", "cpu"])
def test_a_dry_run_needs_neither_nsys_nor_gpu(on: str) -> None:
    ran = profiled("-o", "out", "--dry-run", "--on", on, "--trace", "cuda,nvtx", *command())
    assert "note: no nsys was found here" in ran.stderr
    _, run, export = ran.stdout.splitlines()
    assert " nsys profile --output=" in run
    assert export.startswith("nsys export --type=sqlite ")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_one_message_says_what_works() -> None:
    ran = profiled("nan_check", code=1)
    assert ran.stdout == ""
    assert ran.stderr.startswith("nsysflow: no NVIDIA GPU can be used here: no driver (NVML).")
    assert ran.stderr.endswith("\n  nsysflow profile nan_check --on cpu\n")
    assert "nsysflow doctor" in ran.stderr


@pytest.mark.usefixtures("no_nsys")
def test_without_nsys_torch_profiler_records_and_a_note_says_what_is_missing() -> None:
    ran = profiled("-o", "out", *command(), code=1)  # the program used no steps
    assert "note: no nsys was found, so torch.profiler records this run" in ran.stderr
    assert "or record with nsys" in ran.stderr


def test_a_run_on_the_cpu_asks_nsys_for_nothing_that_needs_a_gpu() -> None:
    asked = ("--backtrace", "waits", "--gil", "--gpu-metrics", "--sample-python", "9")
    ran = profiled("-o", "out", "--dry-run", "--on", "cpu", *asked, *command())
    assert "--trace=nvtx " in ran.stdout
    assert "it ignores --backtrace, --sample-python, --gil, --gpu-metrics" in ran.stderr
    assert not re.search("python-sampling|backtrace|metrics|python-gil", ran.stdout)
