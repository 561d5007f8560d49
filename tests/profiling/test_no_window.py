"""A run whose window left no report says why."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.profiling.failure import no_report_error
from nsysflow.profiling.plan import Plan, plan_kineto, plan_nsys
from nsysflow.profiling.program import ProgramEnd
from nsysflow.profiling.request import Request
from nsysflow.runs.manifest import Annotation
from nsysflow.runtime.child_status import ChildStatus
from nsysflow.runtime.protocol import Window
from tests.nsys.fakes import an_nsys

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
        (
            "kineto",
            "cpu",
            replace(RAN, window="never", steps=0),
            "no step was reported, and --capture 1:1:3 starts at step 3",
        ),
    ],
)
def test_the_reason_depends_on_the_collector_and_on_what_the_program_loaded(
    tmp_path: Path, collector: str, on: str, child: ChildStatus, said: str
) -> None:
    why = str(no_report_error(plan(tmp_path, collector, on), WELL, (child,)))
    assert said in why
    assert ("nsys did not see" in why) == ("forked" in said)
    assert ("had not used CUDA" in why) == ("had not used CUDA" in said)


@pytest.mark.parametrize(
    ("on", "child"),
    [
        ("cpu", had(nvtx="0.2.11")),
        ("cuda", had(nvtx="0.2.11")),
        ("cuda", had(torch="2.11.0")),
    ],
)
def test_the_whole_run_can_be_recorded_as_printed(
    tmp_path: Path, on: str, child: ChildStatus
) -> None:
    error = no_report_error(plan(tmp_path, "nsys", on), WELL, (child,))
    assert error.advice == "Record the whole run to find out"
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
