"""The argv of nsys, for every combination of options."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.nsys.argv import BY_CUDA, Backtrace, Recording, export_argv, profile_argv
from nsysflow.nsys.program import Nsys
from tests.nsys.fakes import an_nsys

NSYS = an_nsys(Path("/opt/nsys"))
OLD = an_nsys(Path("/opt/nsys"), "--gpu-metrics-device", "--quiet")
"""With the options of 2023.4."""
COMMAND = ["python", "train.py", "--trace=mine"]

CUDA_ONLY = (
    "--cuda-graph-trace",
    "--cudabacktrace",
    "--python-backtrace",
    "--capture-range",
    "--capture-range-end",
)


def options(recording: Recording) -> dict[str, str]:
    """The options of nsys profile by name; each may be given once."""
    argv = profile_argv(NSYS, recording, COMMAND)
    pairs = [option.partition("=") for option in argv[2 : -len(COMMAND)]]
    named = {name: value for name, _, value in pairs}
    assert len(named) == len(pairs), f"given twice: {argv}"
    return named


def test_a_plain_recording_samples_nothing_and_records_graph_nodes() -> None:
    assert profile_argv(NSYS, Recording(out=Path("out/report")), COMMAND) == [
        "/opt/nsys",
        "profile",
        "--output=out/report",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        *COMMAND,
    ]


@pytest.mark.parametrize(("backtrace", "calls"), [("waits", "all:20000,sync:0"), ("all", "all:0")])
def test_backtraces_are_of_waits_and_long_calls_or_all_and_need_cpu_samples(
    backtrace: Backtrace, calls: str
) -> None:
    found = options(Recording(out=Path("r"), backtrace=backtrace))
    assert found["--sample"] == "process-tree"
    assert found["--cudabacktrace"] == calls
    assert found["--python-backtrace"] == "cuda"
    assert found["--cpuctxsw"] == "none"


def test_the_cpu_is_sampled_as_rarely_as_this_nsys_can() -> None:
    recording = Recording(out=Path("r"), backtrace="waits")
    rare = profile_argv(replace(NSYS, longest_period=16_000_000), recording, COMMAND)
    assert "--sampling-period=16000000" in rare
    assert not any("--sampling-period" in word for word in profile_argv(NSYS, recording, COMMAND))


@pytest.mark.parametrize("window", [BY_CUDA, "capture@nsysflow.window"])
def test_nsys_ends_with_the_window_if_asked_and_leaves_the_program_alone(window: str) -> None:
    found = options(Recording(out=Path("r"), window=window, shutdown=True))
    assert (found["--capture-range-end"], found["--kill"]) == ("stop-shutdown", "none")


def test_a_time_to_record_leaves_the_program_alone_too() -> None:
    found = options(Recording(out=Path("r"), delay_s=0.5, duration_s=20))
    assert (found["--delay"], found["--duration"], found["--kill"]) == ("0.5", "20", "none")
    assert "--kill" not in options(Recording(out=Path("r"), delay_s=0.5))


def test_python_is_sampled_without_samples_of_the_cpu_and_beside_backtraces() -> None:
    alone = options(Recording(out=Path("r"), python_hz=1000))
    assert alone["--python-sampling"] == "true"
    assert alone["--python-sampling-frequency"] == "1000"
    assert alone["--sample"] == "none"
    both = options(Recording(out=Path("r"), python_hz=1000, backtrace="all"))
    assert both["--sample"] == "process-tree"
    assert both["--python-sampling"] == "true"


def test_a_window_stops_the_recording_and_not_the_program() -> None:
    found = options(Recording(out=Path("r"), window=BY_CUDA))
    assert found["--capture-range"] == "cudaProfilerApi"
    assert found["--capture-range-end"] == "stop"


@pytest.mark.parametrize("nsys", [NSYS, OLD])
@pytest.mark.parametrize("backtrace", get_args(Backtrace))
@pytest.mark.parametrize("toggles", list(product([False, True], repeat=3)))
def test_in_any_combination_the_command_comes_last_and_extra_options_before_it(
    nsys: Nsys, toggles: tuple[bool, ...], backtrace: Backtrace
) -> None:
    window, python, gpu_metrics = toggles
    recording = Recording(
        out=Path("r"),
        window=BY_CUDA if window else None,
        backtrace=backtrace,
        python_hz=100 if python else 0,
        gpu_metrics=gpu_metrics,
        extra=("--stats=true", "-x=false"),
    )
    argv = profile_argv(nsys, recording, COMMAND)
    assert argv[:2] == ["/opt/nsys", "profile"]
    assert argv[-5:] == ["--stats=true", "-x=false", *COMMAND]
    assert all(option.startswith("--") and "=" in option for option in argv[2:-5])
    assert any("gpu-metrics" in option for option in argv) == gpu_metrics
    assert ("--python-sampling-frequency=100" in argv) == python


@pytest.mark.parametrize("backtrace", get_args(Backtrace))
def test_without_cuda_in_the_trace_nsys_gets_no_cuda_option(backtrace: Backtrace) -> None:
    found = options(Recording(out=Path("r"), trace=("nvtx",), backtrace=backtrace))
    assert not set(CUDA_ONLY) & set(found)
    assert found["--sample"] == "none"


def test_a_window_that_would_never_open_is_refused() -> None:
    with pytest.raises(ValueError, match="cudaProfilerStart"):
        profile_argv(NSYS, Recording(out=Path("r"), trace=("nvtx",), window=BY_CUDA), COMMAND)


def test_a_window_may_open_by_an_nvtx_range_instead() -> None:
    found = options(Recording(out=Path("r"), trace=("nvtx",), window="capture@mine"))
    assert found["--capture-range"] == "nvtx"
    assert found["--nvtx-capture"] == "capture@mine"


def test_the_graph_trace_is_passed_on() -> None:
    assert options(Recording(out=Path("r"), graph_trace="graph"))["--cuda-graph-trace"] == "graph"


def test_the_gpu_metrics_option_has_the_name_that_this_nsys_knows() -> None:
    recording = Recording(out=Path("r"), gpu_metrics=True)
    assert "--gpu-metrics-devices=all" in profile_argv(NSYS, recording, COMMAND)
    old = profile_argv(OLD, recording, COMMAND)
    assert "--gpu-metrics-device=all" in old
    assert "--gpu-metrics-devices=all" not in old


def expanded(name: str) -> str:
    """A path as nsys reads it: `%%` is `%`, and `%q{NAME}` an environment variable."""
    return re.sub(r"%%|%q\{\w*\}", lambda mark: "%" if mark[0] == "%%" else "(value)", name)


@given(st.text(alphabet="ab%qpnh{}", min_size=1))
def test_nsys_expands_nothing_in_a_path_but_environment_variables(name: str) -> None:
    out = options(Recording(out=Path("f") / name))["--output"]
    assert expanded(out) == re.sub(r"%q\{\w*\}", "(value)", f"f/{name}")


def test_ranks_get_a_report_each() -> None:
    out = options(Recording(out=Path("100%p/rank%q{LOCAL_RANK}")))["--output"]
    assert out == "100%%p/rank%q{LOCAL_RANK}"


def test_an_export_has_json_only_if_requested_and_supported() -> None:
    report, out = Path("r.nsys-rep"), Path("r.sqlite")
    plain = ["/opt/nsys", "export", "--type=sqlite", "--output=r.sqlite", "--quiet=true"]
    assert export_argv(NSYS, report, out, json=False) == [*plain, "r.nsys-rep"]
    assert export_argv(OLD, report, out, json=True) == [*plain, "r.nsys-rep"]
    with_json = export_argv(NSYS, report, out, json=True)
    assert with_json == [*plain, "--include-json=true", "r.nsys-rep"]
