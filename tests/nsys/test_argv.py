"""The argv of nsys, for every combination of options."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.nsys.program import BY_CUDA, Nsys, Recording, export_argv, profile_argv
from nsysflow.runtime.protocol import Backtrace
from tests.nsys.fakes import an_nsys

NSYS = an_nsys(Path("/opt/nsys"))
OLD = an_nsys(Path("/opt/nsys"), "--gpu-metrics-device", "--quiet")
"""With the options of 2023.4."""
COMMAND = ["python", "train.py", "--trace=mine"]
WINDOW = "capture@nsysflow.window"


def options(recording: Recording, nsys: Nsys = NSYS) -> dict[str, str]:
    """The options of nsys profile by name; each may be given once."""
    argv = profile_argv(nsys, recording, COMMAND)
    pairs = [option.partition("=") for option in argv[2 : -len(COMMAND)]]
    named = {name: value for name, _, value in pairs}
    assert len(named) == len(pairs), f"given twice: {argv}"
    return named


def test_a_plain_recording_samples_nothing_and_records_graph_nodes() -> None:
    plain = ["--output=out/report", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"]
    argv = ["/opt/nsys", "profile", *plain, "--cuda-graph-trace=node", *COMMAND]
    assert profile_argv(NSYS, Recording(out=Path("out/report")), COMMAND) == argv


def lines_of(calls: str) -> dict[str, str]:
    """Backtraces of these calls, which need CPU samples."""
    sampled = {"--sample": "process-tree", "--cpuctxsw": "none"}
    return sampled | {"--cudabacktrace": calls, "--python-backtrace": "cuda"}


OF_PYTHON = {"--python-sampling": "true", "--python-sampling-frequency": "1000"}
UNTIL_STOPPED = {"--capture-range-end": "stop-shutdown", "--kill": "none"}


@pytest.mark.parametrize(
    ("recording", "given"),
    [
        ({"backtrace": "waits"}, lines_of("all:20000,sync:0")),
        ({"python_hz": 1000}, {"--sample": "none"} | OF_PYTHON),
        ({"python_hz": 1000, "backtrace": "all"}, {"--sample": "process-tree"} | OF_PYTHON),
        # the program outlives an nsys that ends by itself
        ({"window": BY_CUDA, "shutdown": True}, UNTIL_STOPPED),
        ({"window": WINDOW, "shutdown": True}, UNTIL_STOPPED),
        ({"duration_s": 20}, {"--kill": "none"}),
        ({"delay_s": 0.5}, {"--delay": "0.5", "--kill": None}),
        ({"window": WINDOW}, {"--capture-range": "nvtx", "--nvtx-capture": WINDOW}),
        # without it nsys looks only at strings that the program registered with NVTX
        ({"window": WINDOW}, {"--env-var": "NSYS_NVTX_PROFILER_REGISTER_ONLY=0"}),
        ({"memory": True}, {"--cuda-memory-usage": "true"}),
        ({"memory": True, "trace": ("nvtx",)}, {"--cuda-memory-usage": None}),
        ({"gpu_metrics": True}, {"--gpu-metrics-devices": "all", "--gpu-metrics-device": None}),
        ({"out": Path("100%p/rank%q{LOCAL_RANK}")}, {"--output": "100%%p/rank%q{LOCAL_RANK}"}),
    ],
)
def test_recordings_have_options(recording: dict[str, Any], given: dict[str, str | None]) -> None:
    found = options(Recording(**{"out": Path("r")} | recording))
    assert {name: found.get(name) for name in given} == given


def test_the_options_depend_on_what_this_nsys_can() -> None:
    metrics = options(Recording(out=Path("r"), gpu_metrics=True), OLD)
    assert metrics["--gpu-metrics-device"] == "all"
    assert "--gpu-metrics-devices" not in metrics
    waits = Recording(out=Path("r"), backtrace="waits")
    rare = options(waits, replace(NSYS, longest_period=16_000_000))
    assert rare["--sampling-period"] == "16000000"
    assert "--sampling-period" not in options(waits)


@pytest.mark.parametrize("nsys", [NSYS, OLD])
def test_in_any_combination_the_command_comes_last_and_extra_options_before_it(nsys: Nsys) -> None:
    for window, python_hz, metrics, backtrace in product(
        (None, BY_CUDA), (0, 100), (False, True), get_args(Backtrace)
    ):
        extra = ("--stats=true", "-x=false")
        asked = Recording(out=Path("r"), window=window, backtrace=backtrace, extra=extra)
        recording = replace(asked, python_hz=python_hz, gpu_metrics=metrics)
        argv = profile_argv(nsys, recording, COMMAND)
        assert argv[:2] == ["/opt/nsys", "profile"]
        assert argv[-5:] == ["--stats=true", "-x=false", *COMMAND]
        assert all(option.startswith("--") and "=" in option for option in argv[2:-5])
        assert any("gpu-metrics" in option for option in argv) == metrics
        assert ("--python-sampling-frequency=100" in argv) == bool(python_hz)


def expanded(name: str) -> str:
    """A path as nsys reads it: `%%` is `%`, and `%q{NAME}` an environment variable."""
    return re.sub(r"%%|%q\{\w*\}", lambda mark: "%" if mark[0] == "%%" else "(value)", name)


@given(st.text(alphabet="ab%qpnh{}", min_size=1))
def test_nsys_expands_nothing_in_a_path_but_environment_variables(name: str) -> None:
    out = options(Recording(out=Path("f") / name))["--output"]
    assert expanded(out) == re.sub(r"%q\{\w*\}", "(value)", f"f/{name}")


def test_an_export_has_json_only_if_requested_and_supported() -> None:
    plain = ["/opt/nsys", "export", "--type=sqlite", "--output=r.sqlite", "--quiet=true"]
    for nsys, json, more in (
        (NSYS, False, []),
        (OLD, True, []),
        (NSYS, True, ["--include-json=true"]),
    ):
        argv = export_argv(nsys, Path("r.nsys-rep"), Path("r.sqlite"), json=json)
        assert argv == [*plain, *more, "r.nsys-rep"]
