"""The exact argv of nsys. Pure: tests read it and `--dry-run` prints it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nsysflow.nsys.program import Nsys

METRICS_HZ: Final = 20_000
"""Samples of GPU metrics per second. nsys takes 10 to 200 000, by default 10 000. Every 50 us gives
short kernels samples too, and worked on an H200 (docs/facts.md)."""

BY_CUDA: Final = "cuda"

Backtrace = Literal["waits", "all", "none"]
"""The CUDA calls whose Python lines nsys records: those that block the host, all, or none."""

WAIT_NS: Final = 20_000
"""With `waits`, calls longer than this get a backtrace, of whatever kind: copies and allocations
that block the host, launches that load code or find a full queue. A launch takes 6 us on an H200's
host, and a backtrace adds 26 us to it (docs/facts.md)."""

_CALLS: Final = {"waits": f"all:{WAIT_NS},sync:0", "all": "all:0"}
"""What nsys calls these, with the shortest call of a kind in ns: every synchronisation is a wait.
Kinds change only what `all` says: of `sync:0,memory:0` nsys records but `sync`."""


WITHOUT_XLA_RANGES: Final = "--nvtx-domain-exclude=TSL"
"""Leaves out the domain in which XLA names its modules and operations, for JAX and TensorFlow."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What to record, and where to put it.

    Attributes:
        out: the report's path without suffix. `%q{NAME}` in it stands for that environment variable
            of each process; any other `%` is a plain `%`.
        trace: what nsys calls APIs: `cuda`, `nvtx`, …
        window: what opens a window; None records the whole run. `cuda` is from `cudaProfilerStart`
            to `cudaProfilerStop`, `NAME@DOMAIN` an NVTX range. The program goes on afterwards.
        shutdown: nsys ends when the window closes. It leaves the program running.
        session: a name by which `nsys stop` ends the recording; the program goes on.
        delay_s: record nothing for so long after the start.
        duration_s: record for so long. nsys ends then, and leaves the program running.
        backtrace: whose Python frames to record. This samples the CPU too, which nsys needs for it.
        python_hz: samples of the Python stack of every thread per second; 0 for none.
        gpu_metrics: sample the metrics of all GPUs.
        graph_trace: record the kernels of a CUDA graph, or the graph as one operation.
        extra: more options, passed unchanged; they come last, so they override ours.
    """

    out: Path
    trace: tuple[str, ...] = ("cuda", "nvtx")
    window: str | None = None
    shutdown: bool = False
    session: str | None = None
    delay_s: float | None = None
    duration_s: float | None = None
    backtrace: Backtrace = "none"
    python_hz: int = 0
    gpu_metrics: bool = False
    graph_trace: Literal["node", "graph"] = "node"
    extra: tuple[str, ...] = ()


def profile_argv(nsys: Nsys, recording: Recording, command: list[str]) -> list[str]:
    """The argv that runs `command` under nsys.

    Raises:
        ValueError: the window would never open, because CUDA is not traced.
    """
    cuda = "cuda" in recording.trace
    if recording.window == BY_CUDA and not cuda:
        msg = "cudaProfilerStart opens the window, and nsys sees it only if cuda is traced"
        raise ValueError(msg)
    argv = [str(nsys.path), "profile", f"--output={_plain(recording.out)}"]
    if recording.session is not None:
        argv.append(f"--session-new={recording.session}")
    argv += [
        f"--trace={','.join(recording.trace)}",
        *_sampling(nsys, recording.backtrace if cuda else "none", recording.python_hz),
    ]
    if cuda:
        argv.append(f"--cuda-graph-trace={recording.graph_trace}")
    if recording.window is not None:
        end = "stop-shutdown" if recording.shutdown else "stop"
        argv += [*_opener(recording.window), f"--capture-range-end={end}"]
    argv += _period(recording)
    if recording.shutdown or recording.duration_s is not None:
        argv.append("--kill=none")  # else it gets SIGTERM, sometimes twice, and nobody waits for it
    if recording.gpu_metrics:
        argv += _metrics(nsys)
    return [*argv, *recording.extra, *command]


def export_argv(nsys: Nsys, report: Path, out: Path, *, json: bool) -> list[str]:
    """The argv that exports `report` to SQLite as `out`.

    Args:
        nsys: the nsys to start.
        report: an `.nsys-rep`.
        out: must not exist.
        json: export events' JSON too, which holds the Python frames. 2023.4 cannot.
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
    # without it nsys looks only at strings that a program registered with NVTX
    register = "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"
    return ["--capture-range=nvtx", f"--nvtx-capture={window}", register]


def _period(recording: Recording) -> list[str]:
    lengths = {"--delay": recording.delay_s, "--duration": recording.duration_s}
    return [f"{name}={length:g}" for name, length in lengths.items() if length is not None]


def _sampling(nsys: Nsys, backtrace: Backtrace, python_hz: int) -> list[str]:
    """nsys records frames of CUDA calls only with CPU samples, which nobody reads: so it takes as
    few of them as it can. Python samples need no CPU samples."""
    options = ["--sample=none", "--cpuctxsw=none"]
    if backtrace != "none":
        period = nsys.longest_period
        rarely = [] if period is None else [f"--sampling-period={period}"]
        options = ["--sample=process-tree", "--cpuctxsw=none", *rarely]
        options += [f"--cudabacktrace={_CALLS[backtrace]}", "--python-backtrace=cuda"]
    if python_hz:
        options += ["--python-sampling=true", f"--python-sampling-frequency={python_hz}"]
    return options


def _metrics(nsys: Nsys) -> list[str]:
    """2023.4 has `--gpu-metrics-device`, 2025.3 `--gpu-metrics-devices`, and each refuses the other
    name."""
    plural = nsys.offers("--gpu-metrics-devices")
    devices = "--gpu-metrics-devices" if plural else "--gpu-metrics-device"
    return [f"{devices}=all", f"--gpu-metrics-frequency={METRICS_HZ}"]


def _plain(out: Path) -> str:
    """The path with `%` doubled, except in `%q{`: nsys would read `%p` as the process id."""
    return re.sub(r"%(?!q\{)", "%%", str(out))
