"""A run that fails, or leaves no report, says why."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from nsysflow.profiling.failure import nsys_crashed
from nsysflow.runs.manifest import read_manifest
from tests.profiling.fake import command, fake_nsys, profiled

pytestmark = pytest.mark.usefixtures("machine_with_gpu")


def test_the_programs_exit_code_is_the_commands_and_the_capture_is_kept() -> None:
    ran = profiled("-o", "out", *command(7))
    assert ran.exit_code == 7
    last = ran.stderr.rpartition("nsysflow: ")[2]
    assert "failed with exit code 7; what was captured until then is kept: report.sqlite" in last
    assert "\n  cat out/output.log\n" in last
    assert last.endswith("\n  epoch 1\n")
    assert "the program failed (exit code 7)" in ran.stdout
    assert Path("out/gaps.csv").is_file()
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.exit_code == 7


@pytest.mark.parametrize(
    ("instead", "code", "said"),
    [
        ("exit $code", 0, "wrote no report"),
        ("touch $out.qdstrm; exit 1", 1, "report.qdstrm in out is an unfinished nsys recording"),
        ("echo ERR_NVGPUCTRPERM; exit 1", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("echo usage: nsys profile; exit 1", 1, "nsys refused its options"),
        ("echo Connection to Agent lost.; exit 1", 1, "nsys crashed; your program did not"),
        ("echo Connection to Agent lost.; exit 0", 0, "nsys crashed; your program did not"),
        ("echo Throw in QuadDProtobufComm::Client; exit 1", 1, "nsys crashed; your program did"),
        ("exit 3", 3, "failed with exit code 3; no report was written"),
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


def test_an_error_about_nsys_shows_the_last_lines_of_output(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "echo usage: nsys profile; exit 1")
    ran = profiled("-o", "out", *command())
    assert ran.stderr.endswith("The last lines of output:\n  epoch 1\n  usage: nsys profile\n")


@pytest.mark.parametrize(
    ("output", "crashed"),
    [
        ("End of file\n", True),
        ("epoch 1\nEnd of file\n", False),  # the program's own words
        ("Connection reset by peer", True),
        ("[QuadDCommon::tag_message*] = Local Endpoint is not available.", True),
    ],
)
def test_bare_words_mean_a_crash_only_if_there_is_no_other_output(
    output: str, crashed: bool
) -> None:
    assert nsys_crashed(output) == crashed


def test_a_full_disk_is_named_as_the_reason_for_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.profiling.failure._FULL_BELOW_BYTES", 1 << 62)
    fake_nsys(tmp_path, "exit 1")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "the disk is full" in ran.stderr


def test_the_programs_failure_is_reported_even_if_its_report_cannot_be_exported(
    tmp_path: Path,
) -> None:
    fake_nsys(tmp_path, ": >$out.nsys-rep; exit $code")
    ran = profiled("-o", "out", *command(7))
    assert ran.exit_code == 7
    assert "failed with exit code 7" in ran.stderr
    assert "report.nsys-rep cannot be exported" in ran.stderr


def test_analysing_a_run_without_a_report_says_so(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit 3")
    profiled("-o", "out", *command())
    ran = CliRunner().invoke(main, ["analyze", "out"])
    assert ran.exit_code == 1
    assert "the run in out left no report" in ran.stderr


def test_a_report_that_cannot_be_exported_is_kept_with_its_manifest(tmp_path: Path) -> None:
    fake_nsys(tmp_path, ": >$out.nsys-rep; exit $code")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "report.nsys-rep cannot be exported" in ran.stderr
    assert Path("out/report.nsys-rep").is_file()
    assert read_manifest(Path("out")) is not None


def test_a_window_that_never_opened_is_an_error(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit $code")
    ran = profiled("-o", "out", "--capture", "3:2:5", *command())
    assert ran.exit_code == 1
    assert "the capture window never opened" in ran.stderr
    assert "did not use nsysflow.steps" in ran.stderr


def test_a_window_after_the_last_step_is_an_error_with_both_numbers(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit $code")
    loop = "import nsysflow; [None for _ in nsysflow.steps(range(4))]"
    env = {"NSYS_PROFILING_SESSION_ID": "1"}
    program = f"import os; os.environ.update({env}); {loop}"
    ran = profiled("-o", "out", "--capture", "3:2:5", "--", sys.executable, "-c", program)
    assert "4 steps ran, and --capture 3:2:5 starts at step 6" in ran.stderr


def test_a_long_command_is_shortened_in_the_error(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit 3")
    program = "import sys\n" + "x = 'long'\n" * 20
    ran = profiled("-o", "out", "--", sys.executable, "-S", "-c", program)
    message = ran.stderr.partition("nsysflow: ")[2].splitlines()[0]
    assert " -S -c … failed with exit code 3; no report was written" in message
