"""What works on a machine, and what to type for the rest; also as a page and as JSON. Pure."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from rich.text import Text

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.program import LAST_NVTX, Nsys, misses_new_nvtx, records_nvtx, too_old_for
from nsysflow.nsys.run import ImporterProblem
from nsysflow.record.machine import CAP_PERFMON, CAP_SYS_ADMIN, Machine
from nsysflow.runs.costs import LEAST_KEPT, Costs, range_of

Status = Literal["ok", "note", "problem"]

ENOUGH_BYTES: Final = 3_000_000_000
"""nsys wrote 2.1 GB to the temporary folder for one run with `--osrt` (docs/facts.md)."""

PARANOID_MAX: Final = 2
"""The highest `kernel.perf_event_paranoid` at which users may sample their own processes."""

PACKAGES: Final = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}
"""Debian's and Ubuntu's packages for libraries that Nsight Compute's importer was seen to lack."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was checked.

    Attributes:
        check: its name.
        status: `problem` if profiling cannot work, `note` if something is missing or slower.
        seen: what was found; a sentence or less.
        advice: what to do, a sentence without its full stop; empty if nothing.
        command: what to type, if a command helps.
    """

    check: str
    status: Status
    seen: str
    advice: str = ""
    command: str = ""


def checks_of(machine: Machine) -> Iterator[Check]:
    """Every check of a machine, in the order of the page."""
    yield _ok("python", f"Python {machine.python}, nsysflow {machine.nsysflow}")
    yield _nsys(machine)
    if isinstance(machine.nsys, Nsys):
        yield _reports(machine)
    yield _gpu(machine)
    if isinstance(machine.nsys, Nsys) and machine.gpus.cuda is not None:
        yield _cuda(machine.nsys, machine.gpus.cuda)
    yield _nvtx(machine)
    yield from _torch(machine)
    yield _torchrun(machine)
    if isinstance(machine.nsys, Nsys):
        yield _backtraces(machine)
        yield _python_samples(machine.nsys)
        yield _gil(machine.nsys)
    if not machine.gpus.problem:
        yield _gpu_metrics(machine)
        yield _clocks(machine)
    yield _cpus(machine)
    yield _disk(machine)
    yield from _costs(machine.costs)


def kineto_works(machine: Machine) -> bool:
    """Whether torch.profiler can record: it needs a torch that can use the GPU."""
    return not machine.gpus.problem and machine.torch_cuda is not None


def _ok(check: str, seen: str) -> Check:
    return Check(check=check, status="ok", seen=seen)


def _note(check: str, seen: str, advice: str, command: str = "") -> Check:
    return Check(check=check, status="note", seen=seen, advice=advice, command=command)


def _problem(check: str, seen: str, advice: str, command: str = "") -> Check:
    return Check(check=check, status="problem", seen=seen, advice=advice, command=command)


def _nsys(machine: Machine) -> Check:
    nsys = machine.nsys
    if isinstance(nsys, CaptureError):
        instead = isinstance(nsys, NsysMissing) and kineto_works(machine)
        made = _note if instead else _problem
        return made("nsys", nsys.seen, nsys.advice, nsys.command)
    return _ok("nsys", f"{nsys.version_text} at {nsys.path}, {nsys.origin}")


def _reports(machine: Machine) -> Check:
    """Whether nsys can record, import and export."""
    if machine.importer is not None:
        return _importer(machine.importer, machine)
    if machine.trial is not None and machine.trial.problem is not None:
        return _problem(
            "reports",
            machine.trial.problem,
            "See it for yourself",
            "nsys profile --trace=nvtx --sample=none true",
        )
    return _ok("reports", "nsys recorded, imported and exported a trial run")


def _importer(problem: ImporterProblem, machine: Machine) -> Check:
    packages = [PACKAGES[library] for library in problem.libraries if library in PACKAGES]
    if packages:
        advice = f"Install them, or put them into {machine.libraries}"
        command = f"sudo apt install {' '.join(packages)}"
    elif problem.libraries:
        advice = f"Put them into {machine.libraries}"
        command = f"mkdir -p {machine.libraries}"
    else:
        advice = "Install all of Nsight Systems"
        command = "sudo apt install nsight-systems"
    return _problem("reports", problem.text, advice, command)


def _gpu(machine: Machine) -> Check:
    gpus = machine.gpus
    if gpus.problem is not None:
        advice = (
            "Profile on a machine with a GPU. If this one has a GPU, start the container with"
            " --gpus all, and see whether the driver answers"
        )
        return _problem("gpu", gpus.problem, advice, "nvidia-smi")
    kinds = [f"{gpus.names.count(name)} x {name}" for name in dict.fromkeys(gpus.names)]
    return _ok("gpu", f"{', '.join(kinds)}, driver {gpus.driver}, CUDA {_dotted(gpus.cuda)}")


def _cuda(nsys: Nsys, driver: tuple[int, int]) -> Check:
    """Whether nsys supports the driver's CUDA."""
    supports, has = _dotted(nsys.cupti), _dotted(driver)
    if nsys.cupti is None:
        seen = f"the driver has CUDA {has}; which CUDA this nsys supports is unknown"
        return _note("cuda", seen, "If a report has launches but no kernels, use a newer nsys")
    seen = f"this nsys supports CUDA up to {supports}, and the driver has CUDA {has}"
    if too_old_for(nsys, driver):
        return _problem(
            "cuda",
            f"{seen}: it would record no kernels, without saying so",
            "Install a newer nsys, or record with torch.profiler: --collector kineto",
            "sudo apt install nsight-systems",
        )
    return _ok("cuda", seen)


def _nvtx(machine: Machine) -> Check:
    """Whether ranges of the nvtx package reach the report."""
    version = machine.packages.get("nvtx")
    nsys = machine.nsys if isinstance(machine.nsys, Nsys) else None
    if version is None:
        return _without_nvtx(machine, nsys)
    tried = machine.trial is not None and machine.trial.problem is None
    if tried and machine.trial:
        lost = not machine.trial.ranges
    else:
        lost = nsys is not None and not records_nvtx(version, nsys=nsys.version_text)
    if not lost:
        return _ok("nvtx", f"{version}, and its ranges reach the report" if tried else version)
    nsys_version = f" {nsys.version_text}" if nsys is not None else ""
    return _note(
        "nvtx",
        f"nsys{nsys_version} silently drops the ranges of nvtx {version}",
        "Install an older nvtx or a newer nsys. nsys 2023.4 records nvtx up to"
        f" {_dotted(LAST_NVTX)}, nsys 2025.3 records 0.2.16",
        f"pip install 'nvtx<={_dotted(LAST_NVTX)}'",
    )


def _without_nvtx(machine: Machine, nsys: Nsys | None) -> Check:
    if machine.torch_cuda is not None:
        seen = "missing: torch.cuda.nvtx records ranges instead, without their payloads"
        return _ok("nvtx", seen)
    old = nsys is not None and misses_new_nvtx(nsys.version_text)
    install = f"pip install 'nvtx<={_dotted(LAST_NVTX)}'" if old else "pip install nvtx"
    return _note("nvtx", "missing: ranges and phases will not be recorded", "Install it", install)


def _torch(machine: Machine) -> Iterator[Check]:
    torch, triton = machine.packages.get("torch"), machine.packages.get("triton")
    if torch is None:
        seen = "missing: the built-in workloads need it, other programs do not"
        yield _note("torch", seen, "Install it", "pip install torch")
        return
    if machine.torch_cuda is not None:
        yield _ok("torch", f"{torch}, built for CUDA {machine.torch_cuda}")
    elif machine.gpus.problem:
        yield _ok("torch", f"{torch}, a build for CPUs")
    else:
        seen = f"{torch}, a build for CPUs: it cannot use this GPU"
        install = "pip install --force-reinstall torch"
        yield _note("torch", seen, "Install a build for CUDA", install)
    if triton is not None:
        yield _ok("triton", triton)
    elif machine.torch_cuda is not None:
        seen = "missing: the fused kernels and torch.compile need it"
        yield _note("triton", seen, "Install it", "pip install triton")


def _torchrun(machine: Machine) -> Check:
    if machine.torchrun is not None:
        return _ok("torchrun", f"{machine.torchrun}, for --nproc")
    return _note(
        "torchrun", "missing: --nproc needs it", "It comes with torch", "pip install torch"
    )


def _backtraces(machine: Machine) -> Check:
    """Whether nsys may sample the CPU: without that it records no Python frames."""
    low = machine.paranoid is not None and machine.paranoid <= PARANOID_MAX
    allowed = low or bool(machine.capabilities & {CAP_SYS_ADMIN, CAP_PERFMON})
    if machine.samples or (machine.samples is None and allowed):
        return _ok("backtraces", "nsys may sample the CPU, for the lines of waits (--backtrace)")
    seen = (
        "nsys may not sample the CPU, which the lines of waits need"
        f" (kernel.perf_event_paranoid is {machine.paranoid})"
    )
    if allowed:  # seen in containers, which filter the system call
        advice = "In a container, allow perf_event_open: start it with --cap-add SYS_ADMIN"
        return _note("backtraces", seen, advice)
    command = f"sudo sysctl kernel.perf_event_paranoid={PARANOID_MAX}"
    return _note("backtraces", seen, "Allow it", command)


def _python_samples(nsys: Nsys) -> Check:
    """Whether nsys can say what Python ran; it needs no permission for that."""
    if nsys.samples_python:
        return _ok("samples", "this nsys samples what Python runs, for --sample-python")
    return _note(
        "samples",
        f"nsys {nsys.version_text} cannot sample Python and export what it saw, which"
        " --sample-python needs",
        "Install a newer nsys: 2025.3 can",
        "sudo apt install nsight-systems",
    )


def _gil(nsys: Nsys) -> Check:
    """Whether nsys can say who holds Python's lock."""
    if nsys.traces_gil:
        return _ok("gil", "this nsys traces who holds Python's lock, for --gil")
    return _note(
        "gil",
        f"nsys {nsys.version_text} cannot trace who holds Python's lock, which --gil needs",
        "Install another nsys: 2023.4 and 2025.3 can",
        "sudo apt install nsight-systems",
    )


def _gpu_metrics(machine: Machine) -> Check:
    """Whether this user may read the GPU's counters."""
    if CAP_SYS_ADMIN in machine.capabilities:
        return _ok("gpu metrics", "an administrator may read the GPU's counters")
    if machine.admin_only is False:
        return _ok("gpu metrics", "every user may read the GPU's counters")
    seen = (
        "it is unknown whether this user may read the GPU's counters"
        if machine.admin_only is None
        else "only administrators may read the GPU's counters (ERR_NVGPUCTRPERM)"
    )
    return _note(
        "gpu metrics",
        f"{seen}, which --gpu-metrics needs",
        "Run as root, start the container with --cap-add SYS_ADMIN, or allow it for all users and"
        " reboot",
        "echo options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        " | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
    )


def _clocks(machine: Machine) -> Check:
    """Whether NVML says the GPUs' clocks, power, temperature and traffic."""
    readings = machine.readings or {}
    missing = [name for name, value in readings.items() if value is None]
    if readings and not missing:
        said = "clocks, power, temperature, and traffic over PCIe and NVLink"
        return _ok("clocks", f"NVML says {said}, for PyTorch programs")
    seen = f"NVML does not say: {', '.join(missing) or 'clocks, power and temperature'}"
    if len(missing) < len(readings):
        return _ok("clocks", f"{seen}; the rest is sampled")
    advice = "Without them, see whether steps get slower while this prints a lower clock"
    query = "--query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"
    return _note("clocks", seen, advice, f"nvidia-smi {query} --format=csv -l 1")


def _cpus(machine: Machine) -> Check:
    """Whether waits for a CPU are counted, and what limits this process."""
    may_use = "" if machine.cpus is None else f"this process may use {machine.cpus} CPUs, "
    if not machine.counts_waits:
        seen = f"{may_use}and this kernel does not count how long threads wait for one"
        advice = "Without that, see whether a CPU is free while the program runs"
        return _note("cpus", seen, advice, "top -1")
    if machine.cpu_limit is not None and machine.cpu_limit < (machine.cpus or 0):
        seen = f"{may_use}but its container allows {machine.cpu_limit:g}"
        advice = "Raise the limit of the container, or let no more threads run"
        return _note("cpus", seen, advice, f"export OMP_NUM_THREADS={int(machine.cpu_limit) or 1}")
    return _ok("cpus", f"{may_use}and the kernel counts how long threads wait for one")


def _disk(machine: Machine) -> Check:
    seen = f"{machine.temp_free_bytes / 1e9:,.1f} GB free in {machine.temp}"
    if machine.temp_free_bytes >= ENOUGH_BYTES:
        return _ok("disk", seen)
    return _note(
        "disk",
        f"{seen}, where nsys writes while it records; one run took 2.1 GB",
        "Set TMPDIR to a folder with room; these disks have some",
        "df -h",
    )


def _costs(costs: Costs) -> Iterator[Check]:
    """What recording takes of the host's time here, which estimates of plain steps are by."""
    usual = "plain steps are estimated by what recording usually costs"
    if not costs:
        yield _ok("recording", f"not known here: {usual}")
    for kind, shares in costs.items():
        known, runs = range_of(shares), len(shares)
        if known is not None:
            taken = f"takes {known[0]} to {known[1]} % of the host's time"
            yield _ok("recording", f"{taken}, by {runs} runs ({kind})")
        else:
            seen = f"known after {LEAST_KEPT} runs, {runs} so far ({kind})"
            yield _ok("recording", f"{seen}: until then {usual}")


def _dotted(version: tuple[int, ...] | None) -> str:
    return "?" if version is None else ".".join(map(str, version))


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What works here.

    Attributes:
        checks: everything that was checked.
        works: the commands that work, the best first.
        first: what to type first.
        profile: whether profiling on a GPU works.
    """

    checks: tuple[Check, ...]
    works: tuple[str, ...]
    first: str
    profile: bool


def diagnose(machine: Machine) -> Diagnosis:
    """The checks of a machine, and what follows from them."""
    checks = tuple(checks_of(machine))
    works = tuple(_works(machine))
    return Diagnosis(
        checks=checks,
        works=works,
        first=_first(machine, works),
        profile=all(check.status != "problem" for check in checks),
    )


def _works(machine: Machine) -> Iterator[str]:
    """The commands that work, the best first."""
    nsys = machine.nsys if isinstance(machine.nsys, Nsys) else None
    failed = machine.importer or (machine.trial and machine.trial.problem)
    reports = nsys is not None and not failed
    gpu = not machine.gpus.problem
    if gpu and nsys is not None and reports and not too_old_for(nsys, machine.gpus.cuda):
        yield "profile"
    if kineto_works(machine):
        yield "profile --collector kineto"
    if reports:
        yield "profile --on cpu"
    yield "analyze"


def _first(machine: Machine, works: tuple[str, ...]) -> str:
    """The best command that works, as a whole command line."""
    profile, *options = works[0].split(" ", maxsplit=1)
    if profile == "analyze":
        return "nsysflow demo"
    workload = "torch" in machine.packages and (machine.torch_cuda or options == ["--on cpu"])
    command = [] if workload else ["--", "python", "train.py"]
    return " ".join(
        ["nsysflow profile", *(["launch_bound"] if workload else []), *options, *command]
    )


WIDTH_MAX: Final = 100
"""Columns; longer lines are hard to read."""

_COLOURS: Final = {"ok": "green", "note": "yellow", "problem": "red"}
_INDENT: Final = " " * 21


def doctor_page(diagnosis: Diagnosis, home: Path, *, width: int) -> Iterator[Text]:
    """The lines of the page: each check with what to do about it, what works, and what to type
    first. `home` is shown as `~`."""
    room = min(width, WIDTH_MAX) - len(_INDENT)
    for check in diagnosis.checks:
        seen, *more = _wrapped(_short(check.seen, home), room)
        yield Text.assemble(
            (f"{check.status:<9}", _COLOURS[check.status]), f"{check.check:<12}{seen}"
        )
        yield from (Text(_INDENT + line) for line in more)
        yield from (Text(_INDENT + line) for line in _advice(check, home, room))
    yield Text()
    yield Text(f"Works here: {', '.join(diagnosis.works)}")
    yield Text(f"Type first: {diagnosis.first}")


def doctor_json(diagnosis: Diagnosis, home: Path) -> str:
    """The diagnosis as a JSON document; `home` is shown as `~`."""
    checks = [
        {name: _short(text, home) for name, text in asdict(check).items()}
        for check in diagnosis.checks
    ]
    return json.dumps(asdict(diagnosis) | {"checks": checks}, indent=2)


def _advice(check: Check, home: Path, room: int) -> Iterator[str]:
    """The advice, wrapped, and the command on a line of its own, unwrapped so it can be copied."""
    end = ":" if check.command else ""
    yield from _wrapped(_short(check.advice, home) + end, room)
    if check.command:
        yield f"  {_short(check.command, home)}"


def _wrapped(text: str, room: int) -> list[str]:
    """The text in lines; paths and options stay whole."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _short(text: str, home: Path) -> str:
    return text.replace(f"{home}/", "~/") if home != Path("/") else text
