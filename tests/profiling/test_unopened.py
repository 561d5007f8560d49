"""A run whose window left no report says why, and the reason is the one that was there."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from nsysflow.handshake import Told, Window
from nsysflow.profiling.outcome import why_no_report
from nsysflow.profiling.plan import Plan, plan_kineto, plan_nsys
from nsysflow.profiling.request import Request
from nsysflow.profiling.run import Ended
from tests.nsys.fakes import an_nsys

WINDOW: Final = Window(wait=1, warmup=1, active=3)
PYTHON: Final = {"python": "3.12.1"}
RAN: Final = Told(pid=7, versions=PYTHON, steps=8, captured=3, window="closed")
WELL: Final = Ended(exit_code=0, interrupted=False, wall_ns=1, tail=("done",))


def plan(folder: Path, collector: str, on: str = "cpu", version: str = "2023.4.4") -> Plan:
    asked = Request(command=("python", "x.py"), name="x", folder=folder, window=WINDOW)
    if collector == "kineto":
        return plan_kineto(replace(asked, on="cuda" if on == "cuda" else "cpu"))
    nsys = replace(an_nsys(Path("/opt/nsys")), version_text=version)
    return plan_nsys(asked if on == "cuda" else replace(asked, on="cpu", trace=("nvtx",)), nsys)


def test_a_new_nsys_is_not_told_that_its_nvtx_is_too_new(tmp_path: Path) -> None:
    newer = plan(tmp_path, "nsys", version="2025.3.1.90-253135822126v0")
    why = str(why_no_report(newer, WELL, (had(nvtx="0.2.16"),)))
    assert "it follows no process that is forked" in why
    assert "pip install" not in why


def had(**versions: str) -> Told:
    return replace(RAN, versions=PYTHON | versions)


ENDED_INSIDE: Final = replace(had(torch="2.11.0"), window="open", captured=2)


@pytest.mark.parametrize(
    ("collector", "on", "told", "said"),
    [
        ("nsys", "cpu", had(), "Install it there:\n  pip install nvtx"),
        ("nsys", "cpu", had(nvtx="0.2.11"), "it follows no process that is forked"),
        ("nsys", "cpu", had(nvtx="0.2.16"), "pip install 'nvtx<=0.2.11'"),
        ("nsys", "cuda", had(torch="2.11.0"), "CUDA had not been started"),
        ("nsys", "cuda", had(nvtx="0.2.11"), "the program had not loaded it"),
        ("kineto", "cpu", had(), "pip install torch"),
        ("kineto", "cuda", had(nvtx="0.2.11"), "pip install torch"),
        ("kineto", "cpu", ENDED_INSIDE, "ended inside the window"),
        ("kineto", "cuda", ENDED_INSIDE, "ended inside the window"),
        ("kineto", "cpu", had(torch="2.11.0"), "left no trace of them"),
        (
            "kineto",
            "cpu",
            replace(RAN, window="never", steps=0),
            "told of no step, and --capture 1:1:3 begins with step 3",
        ),
    ],
)
def test_the_reason_is_that_of_who_records_and_of_what_the_program_had(
    tmp_path: Path, collector: str, on: str, told: Told, said: str
) -> None:
    why = str(why_no_report(plan(tmp_path, collector, on), WELL, (told,)))
    assert said in why
    assert ("nsys did not see" in why) == ("forked" in said)
    assert ("CUDA had not" in why) == ("CUDA had not" in said)


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ("cpu", had(nvtx="0.2.11")),
        ("cuda", had(nvtx="0.2.11")),
        ("cuda", had(torch="2.11.0")),
    ],
)
def test_what_to_do_begins_a_sentence_of_its_own(tmp_path: Path, on: str, told: Told) -> None:
    why = str(why_no_report(plan(tmp_path, "nsys", on), WELL, (told,)))
    assert why.partition(" Record the whole run")[0][-1] in ".?"
    assert "Record the whole run" in why


def test_a_program_killed_inside_torch_profilers_window_is_told_that_its_trace_was_due(
    tmp_path: Path,
) -> None:
    killed = replace(WELL, exit_code=137)
    why = str(why_no_report(plan(tmp_path, "kineto"), killed, (ENDED_INSIDE,)))
    assert "No report was written. It ended inside the window" in why
    for told in (replace(ENDED_INSIDE, window="closed"), replace(ENDED_INSIDE, window="never")):
        why = str(why_no_report(plan(tmp_path, "kineto"), killed, (told,)))
        assert why.endswith("No report was written.")
    assert "ended inside" not in str(why_no_report(plan(tmp_path, "nsys"), killed, (ENDED_INSIDE,)))
