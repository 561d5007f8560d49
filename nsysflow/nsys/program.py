"""An nsys: its version, what it supports, what it needs to run, and its command lines. These are
pure: tests read them and `--dry-run` prints them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nsysflow.runtime.protocol import Backtrace

_CUPTI: Final = re.compile(r"libcupti\.so\.(\d+)\.(\d+)$")
_NAMED_IN_SCRIPT: Final = re.compile(r"(/[^\s\"']+/nsys)\b")
_SCRIPT_CHARACTERS: Final = 1 << 16


def target_folder(path: Path) -> Path | None:
    """The folder that the nsys at `path` runs from, `…/target-linux-x64`; None if unknown.

    Links and launcher scripts are followed.
    """
    real = path.resolve()
    if is_script(real):
        with real.open(encoding="utf-8", errors="replace") as file:
            named = map(Path, _NAMED_IN_SCRIPT.findall(file.read(_SCRIPT_CHARACTERS)))
        real = next((program.resolve() for program in named if program.is_file()), real)
    if real.parent.name.startswith("target-linux"):
        return real.parent
    return next(real.parent.parent.glob("target-linux-*"), None)  # for …/bin/nsys


def newest_cupti(target: Path) -> tuple[int, int] | None:
    """The newest CUDA version of a target folder's CUPTI libraries, as (major, minor)."""
    matches = (_CUPTI.search(file.name) for file in target.glob("libcupti.so.*"))
    return max(((int(at[1]), int(at[2])) for at in matches if at is not None), default=None)


def is_script(path: Path) -> bool:
    """Whether a file begins like a script."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def by_version(path: Path) -> list[int]:
    """A key that sorts 2025.10.1 after 2025.3.1."""
    return [int(number) for number in re.findall(r"\d+", str(path))]


ANSWER_WITHIN_S: Final = 30
"""nsys answers `--version` in 10 ms; a cold network file system takes longer."""

LAST_NVTX: Final = (0, 2, 11)
"""The last nvtx package that nsys 2023.4 records; it silently drops the ranges of 0.2.12 and later.
nsys 2025.3 records 0.2.16."""

_MISSES_NVTX: Final = (2023, 4)
"""The newest nsys seen to drop ranges of an nvtx newer than `LAST_NVTX`. Versions between it and
2025.3 were not tried."""

_VERSION: Final = re.compile(r"version (\d+(?:\.\d+)+\S*)")
_OPTION: Final = re.compile(r"(--[a-z][a-z-]+)(?:\[([a-z|]+)\])?")
"""The second part is of several in one, as in `--nvtx-domain-[include|exclude]=`."""

_PERIOD: Final = re.compile(
    r"--sampling-period= Possible values are integers between (\d+) and (\d+)"
)
"""The longest comes first in 2023.4 and 2025.3. Both depend on what the CPU can count."""

_TRACES: Final = re.compile(r"--trace= Possible values are ([^.]*)\.")
_QUOTED: Final = re.compile(r"'([\w-]+)'")

GIL: Final = "python-gil"
"""What nsys calls the trace of Python's lock."""


class DidNotStart(Exception):
    """A program that does not start, or is not an nsys; the message is what it printed."""


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """An nsys that starts.

    Attributes:
        path: what to start.
        version: e.g. (2025, 3, 1).
        version_text: the same as nsys writes it, e.g. `2025.3.1.90-253135822126v0`.
        origin: how it was found, e.g. `on PATH`.
        cupti: the newest CUDA that its CUPTI supports, e.g. (13, 0); None if unknown.
        library_path: a folder with libraries that its importer needs and the system lacks.
        options: the options that its `--help` lists; empty if it lists none.
        longest_period: how much a CPU does between two samples at most, in the unit of
            `--sampling-period` on this machine; None if unknown.
        traces: what it can trace, as its `--help` lists it; empty if it lists nothing.
    """

    path: Path
    version: tuple[int, ...]
    version_text: str
    origin: str
    cupti: tuple[int, int] | None = None
    library_path: Path | None = None
    options: frozenset[str] = frozenset()
    longest_period: int | None = None
    traces: frozenset[str] = frozenset()

    def offers(self, option: str) -> bool:
        """Whether it takes `option`; assumed if its help is unknown."""
        return not self.options or option in self.options

    @property
    def exports_frames(self) -> bool:
        """Whether the Python frames that it records can be read. 2023.4 does not export them."""
        return self.offers("--python-backtrace") and self.offers("--include-json")

    @property
    def samples_python(self) -> bool:
        """Whether it samples Python, and exports the frames that it saw. 2023.4 does not export
        them."""
        return self.offers("--python-sampling") and self.offers("--include-json")

    @property
    def traces_gil(self) -> bool:
        """Whether it can trace who holds Python's lock; assumed if its help is unknown."""
        return not self.traces or GIL in self.traces

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables to set for it besides those of `base`, by default ours."""
        if self.library_path is None:
            return {}
        rest = (os.environ if base is None else base).get("LD_LIBRARY_PATH")
        paths = [str(self.library_path), *([rest] if rest else [])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(paths)}


ASSUMED: Final = Nsys(path=Path("nsys"), version=(), version_text="", origin="not found")
"""For `--dry-run` without any nsys: `nsys`, wherever it may be, with the newest options."""


def version_of(path: Path) -> str:
    """The version that an nsys prints, e.g. `2023.4.4.54-234433681190v0`.

    Raises:
        DidNotStart: it does not start, or is not an nsys.
    """
    output = _output(path, "--version")
    match = _VERSION.search(output)
    if match is None:
        raise DidNotStart(output or "nothing")
    return match[1]


def describe(path: Path, origin: str, *, library_path: Path | None = None) -> Nsys:
    """What is known about the nsys at `path`.

    Raises:
        DidNotStart: it does not start, or is not an nsys.
    """
    text = version_of(path)
    target = target_folder(path)
    page = _help(path)
    periods, traces = _PERIOD.search(page), _TRACES.search(page)
    return Nsys(
        path=path,
        version=version_numbers(text),
        version_text=text,
        origin=origin,
        cupti=None if target is None else newest_cupti(target),
        library_path=library_path,
        options=frozenset(
            name + end for name, ends in _OPTION.findall(page) for end in ends.split("|")
        ),
        longest_period=None if periods is None else max(map(int, periods.groups())),
        traces=frozenset(() if traces is None else _QUOTED.findall(traces[1])),
    )


def misses_new_nvtx(nsys: str) -> bool:
    """Whether an nsys of this version may drop the ranges of a new nvtx."""
    return version_numbers(nsys)[:2] <= _MISSES_NVTX


def records_nvtx(nvtx: str, *, nsys: str) -> bool:
    """Whether that nsys records the ranges of this nvtx: see `LAST_NVTX`."""
    return version_numbers(nvtx) <= LAST_NVTX or not misses_new_nvtx(nsys)


def version_numbers(text: str) -> tuple[int, ...]:
    """`2025.3.1.90-253135822126v0` as (2025, 3, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", text.split("-")[0])[:3])


def too_old_for(nsys: Nsys, driver_cuda: tuple[int, int] | None) -> bool:
    """Whether the driver has a CUDA of a later major version than nsys supports.

    nsys then records calls and copies but no kernels, without saying so: seen with 2023.4, whose
    newest CUPTI is 12.4, on a CUDA 13 driver (docs/facts.md).
    """
    return nsys.cupti is not None and driver_cuda is not None and nsys.cupti[0] < driver_cuda[0]


def output_of(path: Path, *argv: str) -> str:
    """What the nsys at `path` prints for these arguments; empty if it fails."""
    try:
        return _output(path, *argv)
    except DidNotStart:
        return ""


def _help(path: Path) -> str:
    """What `profile` and `export` say of their options; some were renamed between versions."""
    return " ".join(output_of(path, command, "--help") for command in ("profile", "export"))


def _output(path: Path, *argv: str) -> str:
    """What it prints, on one line.

    Raises:
        DidNotStart: it does not start, or fails.
    """
    import subprocess  # takes 4 ms, which -h has not

    try:
        done = subprocess.run(
            [str(path), *argv],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
            timeout=ANSWER_WITHIN_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        msg = f"nothing within {ANSWER_WITHIN_S} s"
        raise DidNotStart(msg) from None
    except OSError as error:
        raise DidNotStart(error.strerror or str(error)) from error
    output = " ".join((done.stdout + done.stderr).split())
    if done.returncode:
        msg = f"{output or 'nothing'} (exit {done.returncode})"
        raise DidNotStart(msg)
    return output


METRICS_HZ: Final = 20_000
"""Samples of GPU metrics per second. nsys takes 10 to 200 000, by default 10 000. Every 50 us gives
short kernels samples too, and worked on an H200 (docs/facts.md)."""

BY_CUDA: Final = "cuda"

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
        memory: record what CUDA allocates.
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
    memory: bool = False
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
    argv = [str(nsys.path), "profile", f"--output={_plain_path(recording.out)}"]
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
    if recording.memory and cuda:
        argv.append("--cuda-memory-usage=true")
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


def _plain_path(out: Path) -> str:
    """The path with `%` doubled, except in `%q{`: nsys would read `%p` as the process id."""
    return re.sub(r"%(?!q\{)", "%%", str(out))
