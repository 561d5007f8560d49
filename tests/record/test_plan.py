"""The plan of a run."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsysflow.base.errors import CaptureError
from nsysflow.nsys.program import WITHOUT_XLA_RANGES, Nsys
from nsysflow.record.plan import (
    WINDOW_DEFAULT,
    Plan,
    plan_kineto,
    plan_nsys,
    shell_commands,
    without_ranges_of_xla,
)
from nsysflow.record.request import DEFAULT_HZ, Request, require_gil, with_sampling
from nsysflow.runtime import protocol
from nsysflow.runtime.inject import FOLDER
from nsysflow.runtime.protocol import Window
from tests.nsys.fakes import an_nsys

pytestmark = pytest.mark.usefixtures("here")

NSYS = an_nsys(
    Path("/opt/nsys"),
    *("--include-json", "--nvtx-domain-exclude", "--python-backtrace", "--python-sampling"),
)
OLD = an_nsys(Path("/opt/nsys"), "--python-backtrace", "--python-sampling", "--quiet")
"""With the options of 2023.4, which records Python frames and cannot export them."""
RUN = Path("/runs/one")
ASKED = Request(command=("python", "train.py"), name="train", folder=RUN)
WINDOW = Window(wait=1, warmup=2, active=3)
ON_CPU = {"window": WINDOW, "on": "cpu", "trace": ("nvtx",)}


def plan(**asked: Any) -> Plan:
    """The plan with nsys."""
    return plan_nsys(replace(ASKED, **asked), NSYS)


def words(plan: Plan, prefix: str) -> list[str]:
    return [word for word in plan.argv if word.startswith(prefix)]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({}, []),
        ({"window": WINDOW}, ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]),
        (ON_CPU, ["--capture-range=nvtx", "--nvtx-capture=capture@nsysflow.window"]),
        ({"window": WINDOW, "stop": True}, ["--capture-range-end=stop-shutdown", "--kill=none"]),
        ({"delay_s": 60, "duration_s": 5}, ["--delay=60", "--duration=5", "--kill=none"]),
        ({"backtrace": None}, ["--cudabacktrace=all:20000,sync:0"]),
        ({"backtrace": "all"}, ["--cudabacktrace=all:0"]),
        ({"sample_python": 500}, ["--python-sampling-frequency=500"]),
        ({"gpu_metrics": True, "graph_trace": "graph"}, ["--cuda-graph-trace=graph"]),
        ({"nsys_args": ("--stats=true",)}, ["--stats=true", "python", "train.py"]),
    ],
)
def test_nsys_gets_what_was_asked_for(asked: dict[str, Any], given: list[str]) -> None:
    assert [word for word in plan(**asked).argv if word in given] == given
    assert bool(words(plan(**asked), "--capture-range")) == ("window" in asked)


def test_a_run_is_described_in_the_programs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    everywhere = {protocol.RUN_FOLDER: str(RUN), protocol.READINGS: "1"}
    of_nsys = {protocol.COLLECTOR: "nsys", **everywhere}
    of_kineto = {protocol.COLLECTOR: "kineto", **everywhere}
    default = {protocol.CAPTURE: str(WINDOW_DEFAULT)}
    annotated = {"PYTHONPATH": f"{FOLDER}:/mine", protocol.ANNOTATE: "1"}
    opened = {protocol.CAPTURE: "1:2:3", protocol.OPENER: "cuda"}
    assert plan().environment == of_nsys
    assert plan(window=WINDOW).environment == of_nsys | opened
    assert plan(**ON_CPU).environment == of_nsys | opened | {protocol.OPENER: "nvtx"}
    assert protocol.READINGS not in plan(readings=False).environment
    for asked, more in (
        ({}, {}),
        ({"annotate": True}, annotated),
        # torch.profiler records stacks only where samples are asked for
        ({"sample_python": 1000}, {protocol.STACKS: "1"}),
        ({"sample_python": 0}, {}),
        ({"shapes": True}, {protocol.SHAPES: "1"}),
        ({"memory": True}, {protocol.MEMORY: "1"}),
    ):
        assert plan_kineto(replace(ASKED, **asked)).environment == of_kineto | default | more
    monkeypatch.setenv("PYTHONPATH", "")  # an empty part would be the working folder
    assert plan(annotate=True).environment == of_nsys | annotated | {"PYTHONPATH": str(FOLDER)}


def test_torch_profiler_runs_the_command_itself_and_always_has_a_window() -> None:
    planned = plan_kineto(ASKED)
    assert planned.argv == ASKED.command
    assert planned.window == WINDOW_DEFAULT
    assert planned.request.backtrace == "none"


def refused(made: Callable[[], Plan], said: str) -> CaptureError:
    with pytest.raises(CaptureError, match=said) as caught:
        made()
    return caught.value


def test_what_the_collector_cannot_record_is_refused() -> None:
    refused(lambda: plan_kineto(replace(ASKED, delay_s=1.0)), "--delay needs nsys")
    refused(lambda: plan_kineto(replace(ASKED, backtrace="all")), "--backtrace needs nsys")
    refused(lambda: plan(window=WINDOW, trace=("nvtx",)), "--trace cuda,nvtx")
    assert "--collector kineto --shapes" in str(refused(lambda: plan(shapes=True), "--shapes"))
    torchrun = ("torchrun", "--nproc-per-node=2", "x.py")
    refused(lambda: plan(command=torchrun, processes=2), "--nproc")
    error = refused(lambda: plan(processes=2, gpu_metrics=True), "only one nsys")
    assert error.command.endswith(" --gpu-metrics -- torchrun --nproc-per-node=2 train.py")


def test_each_rank_has_a_report_and_torchrun_of_the_scripts_python_is_outside_nsys() -> None:
    planned = plan(command=("/env/bin/python3.12", "train.py"), processes=2)
    assert planned.argv[:3] == ("/env/bin/python3.12", "-m", "torch.distributed.run")
    assert planned.argv.index("--no-python") < planned.argv.index("/opt/nsys")
    assert words(planned, "--nproc-per-node") == ["--nproc-per-node=2"]
    assert words(planned, "--output=") == ["--output=/runs/one/rank%q{LOCAL_RANK}"]
    assert planned.argv[-2:] == ("/env/bin/python3.12", "train.py")
    assert [made.sqlite for made in planned.exports] == [RUN / "rank0.sqlite", RUN / "rank1.sqlite"]


def test_a_recording_ends_by_itself_unless_the_end_is_given_or_nsys_cannot() -> None:
    nsys = an_nsys(Path("/opt/nsys"), "--session-new")
    planned = plan_nsys(ASKED, nsys)
    (name,) = planned.sessions
    assert plan_nsys(ASKED, nsys).sessions != (name,)  # a crashed nsys keeps its name in use
    assert (planned.sessions, words(planned, "--session")) == ((name,), [f"--session-new={name}"])
    assert planned.environment[protocol.BOUND] == "1"
    ranks = plan_nsys(replace(ASKED, processes=2), nsys)
    name = ranks.sessions[0].removesuffix("-0")
    assert ranks.sessions == (f"{name}-0", f"{name}-1")
    assert words(ranks, "--session") == [f"--session-new={name}-%q{{LOCAL_RANK}}"]
    assert ranks.environment[protocol.BOUND] == "1"
    ends: tuple[dict[str, Any], ...] = (
        *({"record_all": True}, {"record_all": True, "processes": 2}, {"window": WINDOW}),
        *({"delay_s": 2.0}, {"duration_s": 2.0}),
    )
    others = [plan_nsys(replace(ASKED, **end), nsys) for end in ends]
    for each in (*others, plan_nsys(ASKED, OLD)):
        assert (each.sessions, words(each, "--session")) == ((), [])
        assert protocol.BOUND not in each.environment


def test_the_commands_are_what_a_shell_would_run() -> None:
    planned = plan(command=("python", "my script.py"), window=WINDOW, backtrace="all")
    made, run, export = shell_commands(planned).split("\n")
    assert shlex.split(made) == ["mkdir", "-p", str(RUN)]
    typed = shlex.split(run)
    assert tuple(typed[len(planned.environment) :]) == planned.argv
    variables = dict(word.split("=", 1) for word in typed[: len(planned.environment)])
    assert variables == planned.environment
    assert "--include-json=true" in shlex.split(export)
    sampled = shell_commands(plan(backtrace="none", sample_python=500))
    assert "--include-json=true" in sampled  # with their frames
    assert "--include-json" not in shell_commands(plan(backtrace="none"))


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import jax\n", True),
        ("def f():\n    from jax import numpy\n", True),
        ("import flax.linen as nn\n", True),
        ("import torch\n", False),
        (None, False),
    ],
)
def test_a_script_with_jax_gets_a_note_and_no_ranges_of_xla(
    text: str | None, imports: bool
) -> None:
    if text is not None:
        Path("train.py").write_text(text)
    request, notes = without_ranges_of_xla(ASKED, NSYS)
    assert request == (replace(ASKED, nsys_args=(WITHOUT_XLA_RANGES,)) if imports else ASKED)
    assert len(notes) == imports
    assert all("XLA's own ranges" in note and "--backtrace none" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "nsys"),
    [
        ({"command": ("python", "-m", "train")}, NSYS),
        ({"backtrace": "none"}, NSYS),
        ({"trace": ("cuda",)}, NSYS),
        ({"nsys_args": ("--nvtx-domain-include=mine",)}, NSYS),
        ({}, replace(NSYS, options=frozenset({"--trace"}))),
        ({}, None),
    ],
)
def test_ranges_of_xla_stay_where_they_are_asked_for_or_cannot_be_left_out(
    changes: dict[str, Any], nsys: Nsys | None
) -> None:
    Path("train.py").write_text("import jax")
    asked = replace(ASKED, **changes)
    assert without_ranges_of_xla(asked, nsys) == (asked, ())


@pytest.mark.parametrize(
    ("asked", "nsys", "made"),
    [(None, NSYS, DEFAULT_HZ), (50, NSYS, 50), (None, None, 0), (1000, None, 1000)]
    + [(0, nsys, 0) for nsys in (NSYS, OLD, None)],
)
def test_python_is_sampled_where_possible(asked: int | None, nsys: Nsys | None, made: int) -> None:
    request = replace(ASKED, sample_python=asked)
    assert with_sampling(request, nsys) == (replace(ASKED, sample_python=made), ())


def test_an_nsys_that_cannot_sample_leaves_a_note_or_refuses_what_was_asked_for() -> None:
    request, (note,) = with_sampling(replace(ASKED, sample_python=None), OLD)
    assert request.sample_python == 0
    assert {"2025.3.1.90-1v0", "nsysflow"} <= {*note.split()}
    with pytest.raises(CaptureError, match="--sample-python needs a newer nsys") as raised:
        with_sampling(replace(ASKED, sample_python=1000), OLD)
    assert raised.value.command == "nsysflow doctor"


@pytest.mark.parametrize(
    ("nsys", "said"),
    [
        (None, "torch.profiler would record"),
        (replace(NSYS, traces=frozenset({"cuda"})), "2025.3.1.90-1v0 cannot trace Python's lock"),
    ],
)
def test_pythons_lock_is_traced_only_where_it_can_be(nsys: Nsys | None, said: str) -> None:
    asked = replace(ASKED, trace=("cuda", "nvtx", "python-gil"))
    with pytest.raises(CaptureError, match=f"--gil needs .*{said}") as raised:
        require_gil(asked, nsys)
    assert raised.value.command == "nsysflow doctor"
    require_gil(ASKED, nsys)
    for able in (NSYS, replace(NSYS, traces=frozenset({"python-gil"}))):
        require_gil(asked, able)
