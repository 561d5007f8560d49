"""Why a run left no report."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.record.failure import no_report_error
from nsysflow.record.plan import Plan, plan_kineto, plan_nsys
from nsysflow.record.program import ProgramEnd
from nsysflow.record.request import Request
from nsysflow.runs.manifest import Annotation
from nsysflow.runtime.process import ChildStatus, WindowState
from nsysflow.runtime.protocol import Window
from tests.cli.running import refused
from tests.nsys.fakes import an_nsys
from tests.record.fake import command, fake_nsys, manifest_of, profiled


@pytest.mark.usefixtures("machine_with_gpu")
def test_the_programs_exit_code_is_the_commands_and_the_capture_is_kept() -> None:
    ran = profiled("-o", "out", *command(7), code=7)
    last = ran.stderr.rpartition("nsysflow: ")[2]
    assert "failed with exit code 7; what was captured until then is kept: report.sqlite" in last
    assert last.endswith("\n  cat out/output.log\nThe last lines of output:\n  epoch 1\n")
    assert "the program failed (exit code 7)" in ran.stdout
    assert Path("out/gaps.csv").is_file()
    assert manifest_of().exit_code == 7


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_run_without_a_report_says_why_and_so_does_its_analysis(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit 3")
    program = "import sys\n" + "x = 'long'\n" * 20
    words = ("-o", "out", "--", sys.executable, "-S", "-c", program)
    said = refused("profile", *words, code=3)
    assert " -S -c … failed with exit code 3; no report was written" in said
    assert manifest_of().reports == ()
    assert "the run in out left no report" in refused("analyze", "out", code=1)


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_window_that_never_opened_is_an_error(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "exit $code")
    loop = "import nsysflow; [None for _ in nsysflow.steps(range(4))]"
    program = f"import os; os.environ['NSYS_PROFILING_SESSION_ID'] = '1'; {loop}"
    words = ("-o", "out", "--capture", "3:2:5", "--", sys.executable, "-c", program)
    ran = profiled(*words, code=1)
    said = "the capture window never opened, so nothing was recorded: 4 steps ran, and --capture"
    assert f"{said} 3:2:5 starts at step 6" in ran.stderr


@pytest.mark.usefixtures("machine_with_gpu")
@pytest.mark.parametrize("code", [0, 7])
def test_a_report_that_cannot_be_exported_is_kept(tmp_path: Path, code: int) -> None:
    fake_nsys(tmp_path, ": >$out.nsys-rep; exit $code")
    ran = profiled("-o", "out", *command(code), code=code or 1)
    assert ("failed with exit code 7" in ran.stderr) == (code == 7)
    assert "report.nsys-rep cannot be exported" in ran.stderr
    assert Path("out/report.nsys-rep").is_file()
    assert manifest_of().exit_code == code


PYTHON: Final = {"python": "3.12.1"}
RAN: Final = ChildStatus(pid=7, versions=PYTHON, steps=8, captured=3, window="closed")
WELL: Final = ProgramEnd(exit_code=0, interrupted=False, wall_ns=1, last_lines=("done",))
KILLED: Final = replace(WELL, exit_code=137)


def plan(folder: Path, collector: str = "nsys", on: str = "cpu", version: str = "2023.4.4") -> Plan:
    """A run of `python x.py` with --capture 1:1:3."""
    window = Window(wait=1, warmup=1, active=3)
    asked = Request(command=("python", "x.py"), name="x", folder=folder, window=window)
    if collector == "kineto":
        return plan_kineto(replace(asked, on="cuda" if on == "cuda" else "cpu"))
    nsys = replace(an_nsys(Path("/opt/nsys")), version_text=version)
    return plan_nsys(asked if on == "cuda" else replace(asked, on="cpu", trace=("nvtx",)), nsys)


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (0, "done", "nsys exited normally but wrote no report; its output is in "),
        (1, "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        (1, "usage: nsys profile", "nsys refused its options"),
        (0, "Connection to Agent lost.", "nsys crashed; your program did not"),
        (1, "[QuadDCommon::tag_message*] = Local Endpoint is not ...", "nsys crashed"),
        # bare words mean a crash only if there is no other output
        (1, "End of file\n", "nsys crashed; your program did not"),
        (1, "epoch 1\nEnd of file\n", "failed with exit code 1; no report was written"),
    ],
)
def test_the_output_says_what_went_wrong(tmp_path: Path, code: int, output: str, said: str) -> None:
    end = replace(WELL, exit_code=code, last_lines=tuple(output.splitlines()))
    error = no_report_error(replace(plan(tmp_path), window=None), end, ())
    assert said in str(error)
    if "nsys crashed" in said or "refused" in said:
        assert error.output == end.last_lines


def test_an_unfinished_recording_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.qdstrm").touch()
    said = f"report.qdstrm in {tmp_path} is an unfinished nsys recording"
    assert said in str(no_report_error(plan(tmp_path), KILLED, ()))
    monkeypatch.setattr("nsysflow.record.failure._FULL_BELOW_BYTES", 1 << 62)
    assert "the disk is full" in str(no_report_error(plan(tmp_path), KILLED, ()))


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
    why = str(no_report_error(plan(tmp_path), WELL, (), annotation))
    assert why.startswith("the capture window never opened")
    assert said in why


def had(**versions: str) -> ChildStatus:
    return replace(RAN, versions=PYTHON | versions)


NO_STEP: Final = replace(RAN, window="never", steps=0)
ENDED_INSIDE: Final = replace(had(torch="2.11.0"), window="open", captured=2)
FORKED: Final = "nsys did not see them: it does not follow processes that are forked"
WHOLE_RUN: Final = "\n  nsysflow profile -- python x.py"
ON_CPU: Final = "\n  nsysflow profile --on cpu -- python x.py"


@pytest.mark.parametrize(
    ("collector", "on", "child", "reason", "advice"),
    [
        ("nsys", "cpu", had(), "which the program's Python lacks", "\n  pip install nvtx"),
        ("nsys", "cpu", had(nvtx="0.2.11"), FORKED, ON_CPU),
        ("nsys", "cpu", had(nvtx="0.2.16"), "may be too new for", "pip install 'nvtx<=0.2.11'"),
        ("nsys", "cuda", had(torch="2.11.0"), "the process had not used CUDA", WHOLE_RUN),
        ("nsys", "cuda", had(nvtx="0.2.11"), "the program had not loaded it", WHOLE_RUN),
        ("kineto", "cpu", had(), "the program's Python has no torch", "pip install torch"),
        ("kineto", "cpu", ENDED_INSIDE, "ended inside the window", "Let the program end by itself"),
        ("kineto", "cpu", had(torch="2.11.0"), "torch.profiler left no trace", "output.log"),
        ("kineto", "cpu", NO_STEP, "no step was reported", "its loop was empty"),
    ],
)
def test_the_reason_depends_on_the_collector_and_on_what_the_program_loaded(
    tmp_path: Path, collector: str, on: str, child: ChildStatus, reason: str, advice: str
) -> None:
    why = str(no_report_error(plan(tmp_path, collector, on), WELL, (child,)))
    assert reason in why
    assert advice in why


@pytest.mark.parametrize(
    ("window", "because"),
    [("open", ", because it ended inside the window"), ("closed", ". "), ("never", ". ")],
)
def test_a_program_killed_inside_torch_profilers_window_is_the_reason_for_no_trace(
    tmp_path: Path, window: WindowState, because: str
) -> None:
    child = replace(ENDED_INSIDE, window=window)
    why = str(no_report_error(plan(tmp_path, "kineto"), KILLED, (child,)))
    assert f"no report was written{because}" in why
