"""`nsysflow profile` from what is typed to what is in the run's directory."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from nsysflow.cli import main
from nsysflow.errors import OutputError
from nsysflow.gpu import Gpus
from nsysflow.manifest import read_manifest
from nsysflow.nsys import Places
from nsysflow.profiling.folder import make_run_folder, make_unused_folder
from nsysflow.profiling.outcome import nsys_broke
from tests.nsys.fakes import places
from tests.profiling.fake import fake_nsys, profiled
from tests.unprivileged import unprivileged

H200: Final = Gpus(names=("NVIDIA H200",), driver="580.159", cuda=(13, 0))
NO_GPU: Final = Gpus(problem="no driver (NVML)")

SAYS: Final = "import sys; print('epoch 1'); sys.exit(int(sys.argv[1]))"


@pytest.fixture(autouse=True)
def a_machine_with_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200, a fake nsys that `$NSYSFLOW_NSYS` names, and an empty working folder."""
    monkeypatch.setattr("nsysflow.gpu.gpus", lambda: H200)
    monkeypatch.setenv("NSYSFLOW_NSYS", str(fake_nsys(tmp_path)))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def command(code: int = 0) -> list[str]:
    return ["--", sys.executable, "-c", SAYS, str(code)]


def test_a_run_leaves_report_export_manifest_and_tables_and_prints_the_page() -> None:
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 0
    assert "host-bound: the GPU is idle 48 %" in ran.stdout
    assert "epoch 1" not in ran.stdout
    assert "epoch 1" in ran.stderr
    names = {file.name for file in Path("out").iterdir()}
    assert {"manifest.json", "output.log", "report.nsys-rep", "report.sqlite"} < names
    assert {"summary.md", "report.json", "gaps.csv", "phases.csv"} < names
    assert not [name for name in names if name.startswith((".", "told"))]


def test_the_manifest_says_what_the_run_was_and_holds_no_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_TOKEN", "hush-hush")
    profiled("-o", "out", "--backtrace", *command())
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.command == (sys.executable, "-c", SAYS, "0")
    assert manifest.argv[-4:] == manifest.command
    assert (manifest.exit_code, manifest.interrupted) == (0, False)
    assert (manifest.collector, manifest.on, manifest.capture) == ("nsys", "cuda", None)
    assert manifest.backtrace
    assert manifest.versions["nsys"] == "2025.3.1.90-1v0"
    assert manifest.versions["driver"] == "580.159"
    assert manifest.gpus == ("NVIDIA H200",)
    assert "hush-hush" not in Path("out/manifest.json").read_text()


def test_the_page_of_a_run_is_narrowed_by_what_the_settings_say_of_analyze() -> None:
    plain = profiled("-o", "plain", *command()).stdout
    Path("nsysflow.toml").write_text("[analyze]\nsteps = '1:3'\ntop = 1\ntable = 'gaps'\n")
    narrowed = profiled("-o", "out", *command()).stdout
    asked = ["analyze", "plain", "--no-files", "--steps", "1:3", "--top", "1"]
    Path("nsysflow.toml").unlink()
    assert narrowed.splitlines()[1:] == CliRunner().invoke(main, asked).stdout.splitlines()[1:]
    assert narrowed.splitlines()[1:] != plain.splitlines()[1:]
    steps = Path("out/steps.csv").read_text().splitlines()
    assert len(steps) == 1 + 2


@pytest.mark.parametrize("skipped", ["--dry-run", "--no-analyze"])
def test_a_mistake_in_the_settings_of_analyze_is_named_before_anything_runs(skipped: str) -> None:
    Path("nsysflow.toml").write_text("[analyze]\nsteps = 'all'\n")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "nsysflow.toml: steps in [analyze]: 'all' is not A:B" in ran.stderr
    assert not Path("out").exists()
    assert profiled("-o", "out", skipped, *command()).exit_code == 0


def test_without_a_name_a_run_gets_one_of_its_script_and_the_time() -> None:
    Path("train.py").write_text("print('ran')")
    assert profiled("--", sys.executable, "train.py").exit_code == 0
    (made,) = Path().glob("train-*")
    assert (made / "report.sqlite").is_file()


def test_runs_that_start_at_once_get_a_directory_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Mock(now=Mock(return_value=datetime(2026, 11, 20, 10, 0, 0)))
    monkeypatch.setattr("nsysflow.cli_profile.datetime", clock)
    Path("train.py").write_text("print('ran')")
    for _ in range(3):
        ran = profiled("--no-analyze", "--", sys.executable, "train.py")
        assert ran.exit_code == 0, ran.stderr
    made = [f"train-20261120-100000{suffix}" for suffix in ("", "-2", "-3")]
    assert sorted(path.name for path in Path().glob("train-*")) == made
    assert all((Path(name) / "report.sqlite").is_file() for name in made)
    assert f"wrote {made[2]}: manifest.json" in ran.stderr


def test_a_directory_is_given_to_one_of_those_who_want_it_at_the_same_time() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make_unused_folder, [Path("run")] * 40))
    assert len(set(made)) == 40
    assert all(folder.is_dir() for folder in made)


@pytest.mark.parametrize("code", [0, 7])
def test_an_analysis_that_fails_says_that_the_run_is_kept(code: int) -> None:
    Path("nsysflow.toml").write_text("[analyze]\nrange = 'no such range'\n")
    ran = profiled("-o", "my run", *command(code))
    assert ran.exit_code == (code or 1)
    wrote, _, after = ran.stderr.partition("no range 'no such range'")
    assert "wrote my run: manifest.json, report.sqlite" in wrote
    assert "The run is kept. To look at it again:\n  nsysflow analyze 'my run'\n" in after
    assert "Traceback" not in ran.stderr


def test_the_programs_failure_is_the_commands_and_what_was_captured_is_kept() -> None:
    ran = profiled("-o", "out", *command(7))
    assert ran.exit_code == 7
    last = ran.stderr.rpartition("nsysflow: ")[2]
    assert "failed with exit code 7" in last
    assert "\n  epoch 1\n" in last
    assert "report.sqlite" in last
    assert "the program failed (exit code 7)" in ran.stdout
    assert Path("out/gaps.csv").is_file()
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.exit_code == 7


@pytest.mark.parametrize(
    ("instead", "code", "said"),
    [
        ("sys.exit(code)", 0, "wrote no report"),
        ("Path(out + '.qdstrm').touch(); sys.exit(1)", 1, "report.qdstrm in out is half a report"),
        ("print('ERR_NVGPUCTRPERM'); sys.exit(1)", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("print('usage: nsys profile'); sys.exit(1)", 1, "nsys refused its options"),
        ("print('Connection to Agent lost.'); sys.exit(1)", 1, "nsys broke, and not the program"),
        ("print('Connection to Agent lost.'); sys.exit(0)", 0, "nsys broke, and not the program"),
        ("print('Throw in QuadDProtobufComm::Client'); sys.exit(1)", 1, "nsys broke, and not"),
        ("sys.exit(3)", 3, "\n  epoch 1\nNo report was written"),
    ],
)
def test_a_run_without_a_report_says_why(
    tmp_path: Path, instead: str, code: int, said: str
) -> None:
    fake_nsys(tmp_path, instead)
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == (code or 1)
    assert said in ran.stderr
    assert ran.stdout == ""
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.reports == ()


@pytest.mark.parametrize(
    ("said", "broke"),
    [
        ("End of file\n", True),
        ("epoch 1\nEnd of file\n", False),  # a program's own word
        ("Connection reset by peer", True),
        ("[QuadDCommon::tag_message*] = Local Endpoint is not available.", True),
    ],
)
def test_bare_words_are_nsyss_only_where_the_program_said_nothing(said: str, broke: bool) -> None:
    assert nsys_broke(said) == broke


def test_a_disk_that_is_full_is_named_when_no_report_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.profiling.outcome._FULL_BELOW_BYTES", 1 << 62)
    fake_nsys(tmp_path, "sys.exit(1)")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "the disk is full" in ran.stderr


def test_the_programs_failure_is_told_though_its_report_cannot_be_exported(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "Path(out + '.nsys-rep').write_text('no archive'); sys.exit(code)")
    ran = profiled("-o", "out", *command(7))
    assert ran.exit_code == 7
    assert "failed with exit code 7" in ran.stderr
    assert "report.nsys-rep cannot be exported" in ran.stderr


def test_an_attempt_that_left_no_report_does_not_block_the_next(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "sys.exit(3)")
    assert profiled("-o", "out", *command()).exit_code == 3
    fake_nsys(tmp_path)
    assert profiled("-o", "out", *command()).exit_code == 0
    analysed_again = CliRunner().invoke(main, ["analyze", "out", "--no-files"])
    assert analysed_again.exit_code == 0


def test_a_run_that_left_no_report_is_named_as_one_when_it_is_analysed(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "sys.exit(3)")
    profiled("-o", "out", *command())
    ran = CliRunner().invoke(main, ["analyze", "out"])
    assert ran.exit_code == 1
    assert "out is a run that left no report" in ran.stderr


def test_force_replaces_a_run_and_never_files_of_somebody_else() -> None:
    Path("out").mkdir()
    for name in ("report.sqlite", "mlflow.sqlite", "output.log"):
        Path("out", name).write_text("mine")
    refused = profiled("-o", "out", "--force", *command())
    assert refused.exit_code == 1
    assert "is no run of nsysflow" in refused.stderr
    assert sorted(file.name for file in Path("out").iterdir()) == [
        "mlflow.sqlite",
        "output.log",
        "report.sqlite",
    ]


def test_a_report_that_cannot_be_exported_is_kept_with_its_manifest(tmp_path: Path) -> None:
    broken = "Path(out + '.nsys-rep').write_text('no archive'); sys.exit(code)"
    fake_nsys(tmp_path, broken)
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "report.nsys-rep cannot be exported" in ran.stderr
    assert Path("out/report.nsys-rep").read_text() == "no archive"
    assert read_manifest(Path("out")) is not None


def test_a_window_that_never_opened_is_an_error_that_says_so(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "sys.exit(code)")
    ran = profiled("-o", "out", "--capture", "3:2:5", *command())
    assert ran.exit_code == 1
    assert "the capture range never opened" in ran.stderr
    assert "did not use nsysflow.steps" in ran.stderr


def test_a_window_after_the_last_step_is_told_from_a_program_without_steps(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "sys.exit(code)")
    loop = "import nsysflow; [None for _ in nsysflow.steps(range(4))]"
    env = {"NSYS_PROFILING_SESSION_ID": "1"}
    program = f"import os; os.environ.update({env}); {loop}"
    ran = profiled("-o", "out", "--capture", "3:2:5", "--", sys.executable, "-c", program)
    assert "4 steps ran, and --capture 3:2:5 begins with step 6" in ran.stderr


def test_a_directory_that_exists_is_not_written_without_force() -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    refused = profiled("-o", "out", *command())
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert [file.name for file in Path("out").iterdir()] == ["notes.txt"]
    assert profiled("-o", "out", "--force", *command()).exit_code == 0
    assert Path("out/notes.txt").read_text() == "mine"


def test_force_leaves_nothing_of_an_earlier_run_that_this_one_does_not_replace() -> None:
    profiled("-o", "out", "--nproc", "2", *command())
    profiled("-o", "out", "--force", *command())
    assert not list(Path("out").glob("rank*"))


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    with unprivileged() as folder:
        folder.chmod(0o500)
        with pytest.raises(OutputError, match="cannot be written: Permission denied; nothing was"):
            make_run_folder(folder / "out", force=False)
        with pytest.raises(OutputError, match="cannot be written: Permission denied; nothing was"):
            make_run_folder(folder, force=True)
        with pytest.raises(OutputError, match="cannot be written: Permission denied; nothing was"):
            make_unused_folder(folder / "out")


def test_a_directory_that_cannot_be_used_is_refused_before_anything_runs() -> None:
    Path("out").write_text("a file")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "out is a file, not a directory; nothing was run" in ran.stderr
    assert "epoch 1" not in ran.stderr


def test_ranks_are_analysed_together_and_their_rows_stay_apart() -> None:
    ran = profiled("-o", "out", "--nproc", "2", *command())
    assert ran.exit_code == 0
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.reports == ("rank0.sqlite", "rank1.sqlite")
    rows = json.loads(Path("out/report.json").read_text())
    assert [device["report"] for device in rows["devices"]] == ["rank0", "rank1"]


def test_a_run_is_packed_by_its_one_report_and_ranks_by_name() -> None:
    pack = ["pack", "out", "-o", "packed.sqlite"]
    profiled("-o", "out", "--no-analyze", *command())
    assert CliRunner().invoke(main, pack).exit_code == 0
    profiled("-o", "out", "--force", "--no-analyze", "--nproc", "2", *command())
    refused = CliRunner().invoke(main, pack)
    assert refused.exit_code == 1
    assert "out is a run of 2 ranks, each with its report. Name one of them:" in refused.stderr
    assert "out/rank0.sqlite" in refused.stderr


def test_a_dry_run_prints_the_commands_and_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.gpu.gpus", lambda: NO_GPU)
    ran = profiled("-o", "out", "--dry-run", "--capture", "1:1:1", *command())
    assert ran.exit_code == 0
    assert "--capture-range=cudaProfilerApi" in ran.stdout
    assert " export " in ran.stdout
    assert not Path("out").exists()


def test_flops_that_were_typed_are_kept_with_the_run_and_hold_when_it_is_analysed_again() -> None:
    typed = ("--flops-per-step", "1e9", "--flops-dtype", "tf32")
    ran = profiled("-o", "out", *typed, *command())
    assert ran.exit_code == 0, ran.stderr
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert (manifest.flops_per_step, manifest.flops_dtype) == (1e9, "tf32")
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("MFU")]
    assert "(tf32 dense peak 495 TFLOP/s)" in line
    again = CliRunner().invoke(main, ["analyze", "out", "--no-files", "--flops-per-step", "2e9"])
    (other,) = [line for line in again.stdout.splitlines() if line.startswith("MFU")]
    assert "tf32" in other
    assert other != line


def test_a_manifest_from_before_flops_were_kept_is_read_all_the_same() -> None:
    profiled("-o", "out", *command())
    file = Path("out/manifest.json")
    held = json.loads(file.read_text())
    del held["flops_per_step"], held["flops_dtype"]
    file.write_text(json.dumps(held))
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert (manifest.flops_per_step, manifest.reports) == (None, ("report.sqlite",))


def test_a_workload_of_two_ranks_says_how_to_start_it_on_one_gpu() -> None:
    ran = profiled("ddp")
    assert ran.exit_code == 1
    assert "--nproc 2 needs 2 GPUs" in ran.stderr
    assert ran.stderr.rstrip().endswith("--nproc 1")


def test_flops_beyond_the_gpu_s_end_with_an_error_and_the_run_is_kept() -> None:
    ran = profiled("-o", "out", "--flops-per-step", "1e18", *command())
    assert ran.exit_code == 1
    assert "% of what an NVIDIA H200 can do in bf16" in ran.stderr
    assert Path("out/report.sqlite").is_file()


def test_without_analysis_the_export_is_the_last_thing() -> None:
    ran = profiled("-o", "out", "--no-analyze", *command())
    assert ran.stdout == ""
    assert Path("out/report.sqlite").is_file()
    assert not Path("out/report.json").exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--bacth", "3"), "nan_check has no option --bacth; did you mean --batch?"),
        (("--gradient-clip", "3"), "has no option --gradient-clip. See what it has:"),
        (("--batch", "many"), "nan_check: Invalid value for '--batch': 'many'"),
        (("3",), "nan_check: Got unexpected extra argument (3)"),
    ],
)
def test_what_a_workload_does_not_take_is_refused_before_anything_runs(
    typed: tuple[str, ...], said: str
) -> None:
    ran = profiled("nan_check", "-o", "out", "--", *typed)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.count("Error: ") == 1
    assert said in ran.stderr
    assert not Path("out").exists()


def test_a_workload_says_what_options_it_has() -> None:
    ran = profiled("nan_check", "--", "-h")
    assert ran.exit_code == 0
    assert "--nan-at-step INTEGER" in ran.stdout
    assert not list(Path().iterdir())


def test_without_a_gpu_there_is_one_message_that_says_what_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsysflow.gpu.gpus", lambda: NO_GPU)
    ran = profiled("nan_check")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert ran.stderr.startswith("nsysflow: no NVIDIA GPU can be used here: no driver (NVML).")
    assert "nsysflow profile nan_check --on cpu" in ran.stderr
    assert "nsysflow doctor" in ran.stderr
    assert not list(Path().iterdir())


def test_without_nsys_torch_profiler_records_and_a_line_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Places, "here", lambda: places(tmp_path / "empty"))
    ran = profiled("-o", "out", *command())
    assert "note: no nsys was found, so torch.profiler records this run" in ran.stderr
    assert ran.exit_code == 1  # the program used no steps
    assert "or record with nsys, which needs no change to the program" in ran.stderr


def test_the_gaps_never_overwrite_a_run_s_report() -> None:
    profiled("-o", "out", *command())
    before = Path("out/report.sqlite").read_bytes()
    ran = CliRunner().invoke(main, ["analyze", "out", "--gaps-csv", "out/report.sqlite"])
    assert ran.exit_code == 1
    assert "is the report itself" in ran.stderr
    assert Path("out/report.sqlite").read_bytes() == before


def test_without_nsys_and_gpu_torch_profiler_records_what_has_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Places, "here", lambda: places(tmp_path / "empty"))
    monkeypatch.setattr("nsysflow.gpu.gpus", lambda: NO_GPU)
    ran = profiled("-o", "out", "--on", "cpu", "--dry-run", "nan_check")
    assert ran.exit_code == 0
    assert "note: no nsys was found, so torch.profiler records this run" in ran.stderr
    ran = profiled("-o", "out", "--on", "cpu", "--dry-run", *command())
    assert ran.exit_code == 1
    assert "no nsys was found that starts" in ran.stderr


def test_a_workload_gets_no_more_ranks_than_there_are_gpus() -> None:
    ran = profiled("nan_check", "--nproc", "2")
    assert ran.exit_code == 1
    assert "--nproc 2 needs 2 GPUs, one per rank, and there are 1 here" in ran.stderr


def test_a_run_on_the_cpu_asks_nsys_for_nothing_that_takes_a_gpu() -> None:
    words = ("--dry-run", "--on", "cpu", "--backtrace", "--gpu-metrics")
    ran = profiled("-o", "out", *words, *command())
    assert "--trace=nvtx " in ran.stdout
    assert "note: with --on cpu only ranges are recorded: not --backtrace, --gpu-metrics" in (
        ran.stderr
    )
    assert "backtrace" not in ran.stdout
    assert "metrics" not in ran.stdout


def test_an_nsys_too_old_for_the_driver_is_named_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsysflow.nsys.program.newest_cupti", lambda _target: (12, 4))
    monkeypatch.setattr("nsysflow.nsys.program.target_folder", lambda path: path.parent)
    ran = profiled("-o", "out", *command())
    assert "knows CUDA up to 12.4 and this driver is CUDA 13.0" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a workload"),
        (["--variant", "sync", "--", "true"], "--variant and --precision are for workloads"),
        (["--capture", "3:2", "--", "true"], "WAIT:WARMUP:ACTIVE"),
        (["--capture", "3:2:0", "--", "true"], "WAIT:WARMUP:ACTIVE"),
        (["python", "train.py"], "argument (train.py). A command of your own goes after --"),
        (["train.py"], "A command of your own goes after --"),
    ],
)
def test_wrong_usage_is_exit_2(words: list[str], said: str) -> None:
    ran = profiled(*words)
    assert ran.exit_code == 2
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nan_chek"], "nan_check"),
        (["nan_check", "--variant", "asink"], "async"),
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "nan_check"], "nan_check is a built-in workload, which goes before --"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(words: list[str], said: str) -> None:
    ran = profiled(*words)
    assert ran.exit_code == 1
    assert said in ran.stderr


def test_a_runs_directory_is_analysed_again_in_place() -> None:
    profiled("-o", "out", *command(7))
    Path("out/gaps.csv").unlink()
    ran = CliRunner().invoke(main, ["analyze", "out"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert "the program failed (exit code 7)" in ran.stdout
    assert Path("out/gaps.csv").is_file()
    assert not Path("out.nsysflow").exists()
