"""The exact argv of nsys: pure, so that a test can read it and `--dry-run` can print it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nsysflow.nsys.program import Nsys

METRICS_HZ: Final = 20_000
"""How often the GPU's metrics are read. nsys takes 10 to 200 000 and reads 10 000 by itself; 50 us
apart, short kernels get samples too, and it worked on an H200 (docs/facts.md)."""

BY_CUDA: Final = "cuda"


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What to record, and where to put it.

    Attributes:
        out: the report without its suffix. `%q{NAME}` in it stands for that environment variable
            of each process; every other `%` is one.
        trace: what nsys calls APIs: `cuda`, `nvtx`, …
        window: what opens a window instead of recording the whole run: `cuda`, that is
            `cudaProfilerStart` to `cudaProfilerStop`, or an NVTX range's `NAME@DOMAIN`. The program
            goes on afterwards.
        backtrace: the Python frames of every CUDA call. Samples the CPU, which nsys needs for it.
        gpu_metrics: the metrics of all GPUs.
        graph_trace: the kernels of a CUDA graph each, or the graph as one.
        extra: further options, as they are; they come last and so win.
    """

    out: Path
    trace: tuple[str, ...] = ("cuda", "nvtx")
    window: str | None = None
    backtrace: bool = False
    gpu_metrics: bool = False
    graph_trace: Literal["node", "graph"] = "node"
    extra: tuple[str, ...] = ()


def profile_argv(nsys: Nsys, capture: Capture, command: list[str]) -> list[str]:
    """What to start to run `command` under nsys.

    Raises:
        ValueError: the window would never open, since CUDA is not traced.
    """
    cuda = "cuda" in capture.trace
    if capture.window == BY_CUDA and not cuda:
        msg = "a window opens by cudaProfilerStart, which nsys sees only with cuda in the trace"
        raise ValueError(msg)
    argv = [str(nsys.path), "profile", f"--output={_plain(capture.out)}"]
    argv += [f"--trace={','.join(capture.trace)}", *_sampling(backtrace=capture.backtrace and cuda)]
    if cuda:
        argv.append(f"--cuda-graph-trace={capture.graph_trace}")
    if capture.window is not None:
        argv += [*_opener(capture.window), "--capture-range-end=stop"]
    if capture.gpu_metrics:
        argv += _metrics(nsys)
    return [*argv, *capture.extra, *command]


def export_argv(nsys: Nsys, report: Path, out: Path, *, json: bool) -> list[str]:
    """What to start to export `report` to SQLite as `out`.

    Args:
        nsys: whose options to use.
        report: an `.nsys-rep`.
        out: must not exist.
        json: also events' JSON, where the Python frames are. 2023.4 has no such option.
    """
    argv = [str(nsys.path), "export", "--type=sqlite", f"--output={out}"]
    if nsys.offers("--quiet"):
        argv.append("--quiet=true")
    if json and nsys.offers("--include-json"):
        argv.append("--include-json=true")
    return [*argv, str(report)]


def _opener(window: str) -> list[str]:
    if window == BY_CUDA:
        return ["--capture-range=cudaProfilerApi"]
    # nsys otherwise looks only at strings that a program registers with NVTX
    register = "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"
    return ["--capture-range=nvtx", f"--nvtx-capture={window}", register]


def _sampling(*, backtrace: bool) -> list[str]:
    """Frames of CUDA calls come only with CPU samples, and only of calls longer than a threshold,
    80 us by itself; without either, nothing is sampled."""
    if backtrace:
        return ["--sample=process-tree", "--cudabacktrace=all:0", "--python-backtrace=cuda"]
    return ["--sample=none", "--cpuctxsw=none"]


def _metrics(nsys: Nsys) -> list[str]:
    """2023.4 has `--gpu-metrics-device`, 2025.3 `--gpu-metrics-devices`; the other is an error in
    either, so its help decides."""
    plural = nsys.offers("--gpu-metrics-devices")
    devices = "--gpu-metrics-devices" if plural else "--gpu-metrics-device"
    return [f"{devices}=all", f"--gpu-metrics-frequency={METRICS_HZ}"]


def _plain(out: Path) -> str:
    """The path with each `%` doubled that is not `%q{`: nsys would read `%p` as the pid."""
    return re.sub(r"%(?!q\{)", "%%", str(out))
