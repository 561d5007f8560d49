"""Why a run left no report."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.base.errors import CaptureError
from nsysflow.record.failure import no_report_error
from nsysflow.record.plan import Plan, plan_kineto, plan_nsys
from nsysflow.record.program import ProgramEnd
from nsysflow.record.request import Request
from nsysflow.runs.manifest import Annotation
from nsysflow.runtime.process import ChildStatus
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


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_trial_on_the_cpu_without_a_report_leaves_no_folder(tmp_path: Path) -> None:
    fake_nsys(tmp_path, "echo Connection to Agent lost; exit 0")
    said = refused("profile", "--on", "cpu", "-o", "out", *command(), code=1)
    assert "nsys crashed" in said
    assert not Path("out").exists()


def plan(folder: Path, collector: str = "nsys", on: str = "cpu", version: str = "2023.4.4") -> Plan:
    """A run of `python x.py` with --capture 1:1:3."""
    window = Window(wait=1, warmup=1, active=3)
    asked = Request(command=("python", "x.py"), name="x", folder=folder, window=window)
    if collector == "kineto":
        return plan_kineto(replace(asked, on="cuda" if on == "cuda" else "cpu"))
    nsys = replace(an_nsys(Path("/opt/nsys")), version_text=version)
    return plan_nsys(asked if on == "cuda" else replace(asked, on="cpu", trace=("nvtx",)), nsys)


def test_an_unfinished_recording_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.qdstrm").touch()
    said = f"report.qdstrm in {tmp_path} is an unfinished nsys recording"
    assert said in str(no_report_error(plan(tmp_path), KILLED, ()))
    monkeypatch.setattr("nsysflow.record.failure._FULL_BELOW_BYTES", 1 << 62)
    assert "the disk is full" in str(no_report_error(plan(tmp_path), KILLED, ()))


def had(**versions: str) -> ChildStatus:
    return replace(RAN, versions=PYTHON | versions)


ENDED_INSIDE: Final = replace(had(torch="2.11.0"), window="open", captured=2)
Why = Callable[[Path], CaptureError]
"""The error of a run in a folder."""


def printed(output: str, code: int = 1) -> Why:
    """Of a whole run that printed this last."""
    end = replace(WELL, exit_code=code, last_lines=tuple(output.splitlines()))
    return lambda folder: no_report_error(replace(plan(folder), window=None), end, ())


def no_steps(annotation: Annotation | None) -> Why:
    return lambda folder: no_report_error(plan(folder), WELL, (), annotation)


def of(child: ChildStatus, collector: str = "nsys", on: str = "cpu", end: ProgramEnd = WELL) -> Why:
    return lambda folder: no_report_error(plan(folder, collector, on), end, (child,))


NO_REPORT: Final[dict[str, Why]] = {
    "of nsys": printed("done", code=0),
    "counters for administrators only": printed("ERR_NVGPUCTRPERM"),
    "options that nsys refuses": printed("usage: nsys profile"),
    "nsys crashed": printed("Connection to Agent lost.", code=0),
    "nsys crashed otherwise": printed("[QuadDCommon::tag_message*] = Local Endpoint is not ..."),
    "bare words mean a crash": printed("End of file\n"),
    "only if there is no other output": printed("epoch 1\nEnd of file\n"),
    "no steps, and the hook kept out": no_steps(Annotation(hooked=False, torch=False)),
    "no steps, and no torch": no_steps(Annotation(hooked=True, torch=False)),
    "no steps, and not annotated": no_steps(
        Annotation(hooked=True, torch=False, problem="KeyError: 'x'")
    ),
    "no steps of ours": no_steps(None),
    "no nvtx": of(had()),
    "an nvtx that nsys knows": of(had(nvtx="0.2.11")),
    "too new an nvtx": of(had(nvtx="0.2.16")),
    "no CUDA in the process": of(had(torch="2.11.0"), on="cuda"),
    "no CUDA in the program": of(had(nvtx="0.2.11"), on="cuda"),
    "no torch": of(had(), "kineto"),
    "ended inside the window": of(ENDED_INSIDE, "kineto"),
    "no trace": of(had(torch="2.11.0"), "kineto"),
    "no step": of(replace(RAN, window="never", steps=0), "kineto"),
    "killed inside the window": of(ENDED_INSIDE, "kineto", end=KILLED),
    "killed behind the window": of(replace(ENDED_INSIDE, window="closed"), "kineto", end=KILLED),
    "killed before the window": of(replace(ENDED_INSIDE, window="never"), "kineto", end=KILLED),
}
"""Why a run left no report; their words are in tests/report/pages/no-report.txt."""
