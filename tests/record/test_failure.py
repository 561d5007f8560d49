"""Why a run left no report."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from nsysflow.record.failure import no_report_error, nsys_crashed
from nsysflow.record.plan import Plan, plan_kineto, plan_nsys
from nsysflow.record.program import ProgramEnd
from nsysflow.record.request import Request
from nsysflow.runs.manifest import Annotation, read_manifest
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import Window
from tests.nsys.fakes import an_nsys
from tests.record.fake import command, fake_nsys, profiled

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
        (
            "echo usage: nsys profile; exit 1",
            1,
            "output:\n  epoch 1\n  usage: nsys profile\n",
        ),
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
    monkeypatch.setattr("nsysflow.record.failure._FULL_BELOW_BYTES", 1 << 62)
    fake_nsys(tmp_path, "exit 1")
    ran = profiled("-o", "out", *command())
    assert ran.exit_code == 1
    assert "the disk is full" in ran.stderr


@pytest.mark.parametrize("code", [0, 7])
def test_a_report_that_cannot_be_exported_is_kept_and_a_failure_of_the_program_reported(
    tmp_path: Path, code: int
) -> None:
    fake_nsys(tmp_path, ": >$out.nsys-rep; exit $code")
    ran = profiled("-o", "out", *command(code))
    assert ran.exit_code == (code or 1)
    assert ("failed with exit code 7" in ran.stderr) == (code == 7)
    assert "report.nsys-rep cannot be exported" in ran.stderr
    assert Path("out/report.nsys-rep").is_file()
    assert read_manifest(Path("out")) is not None


def test_a_long_command_is_shortened_and_analysing_its_run_says_that_it_left_no_report(
    tmp_path: Path,
) -> None:
    fake_nsys(tmp_path, "exit 3")
    program = "import sys\n" + "x = 'long'\n" * 20
    ran = profiled("-o", "out", "--", sys.executable, "-S", "-c", program)
    message = ran.stderr.partition("nsysflow: ")[2].splitlines()[0]
    assert " -S -c … failed with exit code 3; no report was written" in message
    again = CliRunner().invoke(main, ["analyze", "out"])
    assert again.exit_code == 1
    assert "the run in out left no report" in again.stderr


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


WINDOW: Final = Window(wait=1, warmup=1, active=3)
PYTHON: Final = {"python": "3.12.1"}
RAN: Final = ChildStatus(pid=7, versions=PYTHON, steps=8, captured=3, window="closed")
WELL: Final = ProgramEnd(exit_code=0, interrupted=False, wall_ns=1, last_lines=("done",))


def plan(folder: Path, collector: str, on: str = "cpu", version: str = "2023.4.4") -> Plan:
    asked = Request(command=("python", "x.py"), name="x", folder=folder, window=WINDOW)
    if collector == "kineto":
        return plan_kineto(replace(asked, on="cuda" if on == "cuda" else "cpu"))
    nsys = replace(an_nsys(Path("/opt/nsys")), version_text=version)
    return plan_nsys(asked if on == "cuda" else replace(asked, on="cpu", trace=("nvtx",)), nsys)


def test_with_a_new_nsys_the_reason_is_not_a_too_new_nvtx(tmp_path: Path) -> None:
    newer = plan(tmp_path, "nsys", version="2025.3.1.90-253135822126v0")
    why = str(no_report_error(newer, WELL, (had(nvtx="0.2.16"),)))
    assert "it does not follow processes that are forked" in why
    assert "pip install" not in why


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotation(hooked=False, torch=False), "python -I, -E and -S keep it out"),
        (Annotation(hooked=True, torch=False), "no process of the program imported torch"),
        (Annotation(hooked=True, torch=False, problem="KeyError: 'x'"), "and KeyError: 'x'. Put"),
        (None, "did not use nsysflow.steps. Put its loop"),
    ],
)
def test_without_steps_of_either_kind_the_reason_is_said(
    tmp_path: Path, annotation: Annotation | None, said: str
) -> None:
    why = str(no_report_error(plan(tmp_path, "nsys"), WELL, (), annotation))
    assert "the program did not use nsysflow.steps" in why
    assert said in why


def had(**versions: str) -> ChildStatus:
    return replace(RAN, versions=PYTHON | versions)


NO_STEP: Final = replace(RAN, window="never", steps=0)
ENDED_INSIDE: Final = replace(had(torch="2.11.0"), window="open", captured=2)


@pytest.mark.parametrize(
    ("collector", "on", "child", "said"),
    [
        ("nsys", "cpu", had(), "Install it there:\n  pip install nvtx"),
        ("nsys", "cpu", had(nvtx="0.2.11"), "it does not follow processes that are forked"),
        ("nsys", "cpu", had(nvtx="0.2.16"), "pip install 'nvtx<=0.2.11'"),
        ("nsys", "cuda", had(torch="2.11.0"), "the process had not used CUDA"),
        ("nsys", "cuda", had(nvtx="0.2.11"), "the program had not loaded it"),
        ("kineto", "cpu", had(), "pip install torch"),
        ("kineto", "cuda", had(nvtx="0.2.11"), "pip install torch"),
        ("kineto", "cpu", ENDED_INSIDE, "ended inside the window"),
        ("kineto", "cuda", ENDED_INSIDE, "ended inside the window"),
        ("kineto", "cpu", had(torch="2.11.0"), "torch.profiler left no trace"),
        ("kineto", "cpu", NO_STEP, "no step was reported, and --capture 1:1:3 starts at step 3"),
    ],
)
def test_the_reason_depends_on_the_collector_and_on_what_the_program_loaded(
    tmp_path: Path, collector: str, on: str, child: ChildStatus, said: str
) -> None:
    why = str(no_report_error(plan(tmp_path, collector, on), WELL, (child,)))
    assert said in why
    assert ("nsys did not see" in why) == ("forked" in said)
    assert ("had not used CUDA" in why) == ("had not used CUDA" in said)


@pytest.mark.parametrize(("on", "package"), [("cpu", "nvtx"), ("cuda", "nvtx"), ("cuda", "torch")])
def test_the_whole_run_can_be_recorded_as_printed(tmp_path: Path, on: str, package: str) -> None:
    error = no_report_error(plan(tmp_path, "nsys", on), WELL, (had(**{package: "0.2.11"}),))
    on_cpu = "--on cpu " if on == "cpu" else ""
    assert error.command == f"nsysflow profile {on_cpu}-- python x.py"


def test_a_program_killed_inside_torch_profilers_window_is_the_reason_for_no_trace(
    tmp_path: Path,
) -> None:
    killed = replace(WELL, exit_code=137)
    why = str(no_report_error(plan(tmp_path, "kineto"), killed, (ENDED_INSIDE,)))
    assert "no report was written, because it ended inside the window" in why
    for child in (replace(ENDED_INSIDE, window="closed"), replace(ENDED_INSIDE, window="never")):
        why = str(no_report_error(plan(tmp_path, "kineto"), killed, (child,)))
        assert "no report was written. " in why
    assert "ended inside" not in str(
        no_report_error(plan(tmp_path, "nsys"), killed, (ENDED_INSIDE,))
    )
