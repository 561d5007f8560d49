"""The plan of a run."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsysflow.base.errors import CaptureError
from nsysflow.nsys.program import Nsys
from nsysflow.record.plan import (
    WINDOW_DEFAULT,
    Plan,
    plan_kineto,
    plan_nsys,
    shell_commands,
    without_backtraces_of_jax,
)
from nsysflow.record.request import DEFAULT_HZ, Request, with_sampling
from nsysflow.runtime import protocol
from nsysflow.runtime.inject import FOLDER
from nsysflow.runtime.protocol import Window
from tests.nsys.fakes import an_nsys, script
from tests.record.fake import command, profiled

NSYS = an_nsys(Path("/opt/nsys"), "--include-json", "--python-backtrace")
RUN = Path("/runs/one")
ASKED = Request(command=("python", "train.py"), name="train", folder=RUN)
WINDOW = Window(wait=1, warmup=2, active=3)


def words(plan: Plan, prefix: str) -> list[str]:
    return [word for word in plan.argv if word.startswith(prefix)]


def test_without_a_window_the_whole_run_is_recorded() -> None:
    plan = plan_nsys(ASKED, NSYS)
    assert plan.window is None
    assert words(plan, "--capture-range") == []
    assert {"PYTHONPATH", protocol.ANNOTATE, protocol.CAPTURE}.isdisjoint(plan.environment)


def test_a_window_opens_by_the_cuda_profiler_on_a_gpu_and_else_by_an_nvtx_range() -> None:
    plan = plan_nsys(replace(ASKED, window=WINDOW), NSYS)
    assert plan.window == WINDOW
    assert words(plan, "--capture-range=") == ["--capture-range=cudaProfilerApi"]
    assert plan.environment[protocol.CAPTURE] == "1:2:3"
    assert plan.environment[protocol.OPENER] == "cuda"
    plan = plan_nsys(replace(ASKED, window=WINDOW, on="cpu", trace=("nvtx",)), NSYS)
    assert words(plan, "--capture-range=") == ["--capture-range=nvtx"]
    assert plan.environment[protocol.OPENER] == "nvtx"
    assert words(plan, "--nvtx-capture=") == ["--nvtx-capture=capture@nsysflow.window"]
    # without it nsys looks only at strings that the program registered with NVTX
    assert words(plan, "--env-var=") == ["--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]


def test_the_environment_names_the_runs_folder_and_the_collector() -> None:
    for plan in (plan_nsys(ASKED, NSYS), plan_kineto(ASKED)):
        assert plan.environment[protocol.RUN_FOLDER] == str(RUN)
        assert plan.environment[protocol.COLLECTOR] == plan.collector


def test_annotation_puts_our_folder_before_the_users_pythonpath(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = replace(ASKED, annotate=True)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    for plan in (plan_nsys(asked, NSYS), plan_kineto(asked)):
        assert plan.environment["PYTHONPATH"] == f"{FOLDER}:/mine"
        assert plan.environment[protocol.ANNOTATE] == "1"
    monkeypatch.setenv("PYTHONPATH", "")  # an empty part would be the working folder
    assert plan_nsys(asked, NSYS).environment["PYTHONPATH"] == str(FOLDER)


def test_a_program_that_we_end_outlives_nsys() -> None:
    stopped = plan_nsys(replace(ASKED, window=WINDOW, stop=True), NSYS)
    assert words(stopped, "--capture-range-end") == ["--capture-range-end=stop-shutdown"]
    timed = plan_nsys(replace(ASKED, delay_s=60, duration_s=5), NSYS)
    assert words(timed, "--d") == ["--delay=60", "--duration=5"]
    assert words(timed, "--kill") == words(stopped, "--kill") == ["--kill=none"]


def refused(plan: Callable[[], Plan], said: str) -> CaptureError:
    with pytest.raises(CaptureError, match=said) as caught:
        plan()
    return caught.value


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"delay_s": 1.0}, "--delay needs nsys"),
        ({"duration_s": 1.0}, "--duration needs nsys"),
        ({"backtrace": "all"}, "needs nsys"),
        ({"backtrace": "waits"}, "needs nsys"),
        ({"gpu_metrics": True}, "needs nsys"),
    ],
)
def test_torch_profiler_refuses_what_only_nsys_records(asked: dict[str, Any], said: str) -> None:
    refused(lambda: plan_kineto(replace(ASKED, **asked)), said)


def test_what_nsys_cannot_record_is_refused() -> None:
    unseen = replace(ASKED, window=WINDOW, trace=("nvtx",))
    refused(lambda: plan_nsys(unseen, NSYS), "--trace cuda,nvtx")
    nested = replace(ASKED, command=("torchrun", "--nproc-per-node=2", "x.py"), processes=2)
    refused(lambda: plan_nsys(nested, NSYS), "--nproc")
    everywhere = replace(ASKED, processes=2, gpu_metrics=True)
    error = refused(lambda: plan_nsys(everywhere, NSYS), "only one nsys")
    assert error.command == (
        "nsysflow profile --gpu-metrics -- torchrun --nproc-per-node=2 train.py"
    )


def test_a_relative_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_nsys(replace(ASKED, folder=Path("out")), NSYS)
    assert words(plan, "--output=") == [f"--output={tmp_path}/out/report"]
    assert [made.sqlite for made in plan.exports] == [tmp_path / "out" / "report.sqlite"]


def test_each_rank_has_a_report_and_torchrun_is_outside_nsys() -> None:
    plan = plan_nsys(replace(ASKED, processes=2), NSYS)
    torchrun = plan.argv.index("torch.distributed.run")
    assert torchrun < plan.argv.index("--no-python") < plan.argv.index("/opt/nsys")
    assert words(plan, "--nproc-per-node") == ["--nproc-per-node=2"]
    assert words(plan, "--output=") == ["--output=/runs/one/rank%q{LOCAL_RANK}"]
    assert plan.argv[-2:] == ("python", "train.py")
    assert [made.sqlite.name for made in plan.exports] == ["rank0.sqlite", "rank1.sqlite"]


def test_torchrun_comes_from_the_python_that_runs_the_script() -> None:
    plan = plan_nsys(replace(ASKED, command=("/env/bin/python3.12", "x.py"), processes=1), NSYS)
    assert plan.argv[:3] == ("/env/bin/python3.12", "-m", "torch.distributed.run")


def test_torch_profiler_runs_the_command_itself_and_always_has_a_window() -> None:
    plan = plan_kineto(ASKED)
    assert plan.argv == ASKED.command
    assert plan.window == WINDOW_DEFAULT
    assert plan.environment[protocol.CAPTURE] == str(WINDOW_DEFAULT)


def test_the_lines_of_waits_are_recorded_by_default_where_they_can_be_exported() -> None:
    plan = plan_nsys(ASKED, NSYS)
    assert words(plan, "--cudabacktrace=") == ["--cudabacktrace=all:20000,sync:0"]
    assert plan.request.needs_json
    old = an_nsys(Path("/opt/nsys"), "--python-backtrace", "--quiet")  # as 2023.4
    assert words(plan_nsys(ASKED, old), "--cudabacktrace=") == []
    assert words(plan_nsys(replace(ASKED, backtrace="none"), NSYS), "--cudabacktrace=") == []
    assert plan_kineto(ASKED).request.backtrace == "none"


def test_samples_reach_the_export_with_their_frames() -> None:
    plan = plan_nsys(replace(ASKED, sample_python=500), NSYS)
    assert words(plan, "--python-sampling-frequency") == ["--python-sampling-frequency=500"]
    assert "--include-json=true" in shlex.split(shell_commands(plan).split("\n")[-1])


def test_torch_profiler_records_stacks_only_where_samples_are_asked_for() -> None:
    plans = [plan_kineto(replace(ASKED, sample_python=asked)) for asked in (0, 1000)]
    assert [plan.environment.get(protocol.STACKS) for plan in plans] == [None, "1"]


def test_the_commands_are_what_a_shell_would_run() -> None:
    asked = replace(ASKED, command=("python", "my script.py"), window=WINDOW, backtrace="all")
    plan = plan_nsys(asked, NSYS)
    made, run, export = shell_commands(plan).split("\n")
    assert shlex.split(made) == ["mkdir", "-p", str(RUN)]
    typed = shlex.split(run)
    assert tuple(typed[len(plan.environment) :]) == plan.argv
    assert dict(word.split("=", 1) for word in typed[: len(plan.environment)]) == plan.environment
    assert "--include-json=true" in shlex.split(export)


def test_a_program_that_is_not_python_is_started_by_the_torchrun_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(ASKED, command=("./train.sh",), processes=2)
    torchrun = script(tmp_path / "torchrun", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plan_nsys(asked, NSYS).argv[0] == str(torchrun)
    torchrun.unlink()
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(CaptureError, match="--nproc needs torchrun"):
        plan_nsys(asked, NSYS)


JAX_ASKED = Request(command=("python", "train.py", "--lr", "1"), name="train", folder=Path("out"))


@pytest.fixture(autouse=True)
def inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "text", ["import jax\n", "def f():\n    from jax import numpy\n", "import flax.linen as nn\n"]
)
def test_a_script_that_imports_jax_gets_no_backtraces_and_a_note(text: str) -> None:
    Path("train.py").write_text(text)
    request, (note,) = without_backtraces_of_jax(JAX_ASKED)
    assert request.backtrace == "none"
    assert note.startswith("train.py imports JAX")
    assert "--backtrace waits" in note


@pytest.mark.parametrize("text", ["import torch\n", "import jaxtyping\n", "# import jax\n", None])
def test_other_scripts_keep_the_default(text: str | None) -> None:
    if text is not None:
        Path("train.py").write_text(text)
    assert without_backtraces_of_jax(JAX_ASKED) == (JAX_ASKED, ())
    module = replace(JAX_ASKED, command=("python", "-m", "train"))
    assert without_backtraces_of_jax(module) == (module, ())


def test_what_was_asked_for_is_done() -> None:
    Path("train.py").write_text("import jax\n")
    asked = replace(JAX_ASKED, backtrace="waits")
    assert without_backtraces_of_jax(asked) == (asked, ())


NEW = an_nsys(Path("/opt/nsys"), "--python-sampling", "--include-json")
OLD = an_nsys(Path("/opt/nsys"), "--python-sampling")
"""With the options of 2023.4, which samples Python and cannot export the frames."""


def sampled(asked: int | None) -> Request:
    return replace(ASKED, sample_python=asked)


@pytest.mark.parametrize(
    ("asked", "nsys", "made"),
    [(None, NEW, DEFAULT_HZ), (50, NEW, 50), (None, None, 0), (1000, None, 1000)]
    + [(0, nsys, 0) for nsys in (NEW, OLD, None)],
)
def test_python_is_sampled_by_an_nsys_that_can_and_by_torch_profiler_only_if_asked(
    asked: int | None, nsys: Nsys | None, made: int
) -> None:
    assert with_sampling(sampled(asked), nsys) == (sampled(made), ())


def test_an_nsys_that_cannot_sample_leaves_a_note_or_refuses_what_was_asked_for() -> None:
    request, (note,) = with_sampling(sampled(None), OLD)
    assert request.sample_python == 0
    assert "2025.3.1" in note
    assert "nsysflow doctor" in note
    with pytest.raises(CaptureError, match="--sample-python needs a newer nsys") as raised:
        with_sampling(sampled(1000), OLD)
    assert raised.value.command == "nsysflow doctor"


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_settings_file_switches_samples_off() -> None:
    words = ("-o", "out", "--dry-run", *command())
    assert "--python-sampling-frequency=1000" in profiled(*words).stdout
    Path("nsysflow.toml").write_text("[profile]\nsample-python = 0\n")
    assert "--python-sampling" not in profiled(*words).stdout
