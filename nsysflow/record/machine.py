"""What is on this machine: its GPUs and their driver, its packages, nsys, torchrun."""

import platform
import re
import shutil
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

import nsysflow
from nsysflow.base.errors import CaptureError
from nsysflow.nsys.installations import Places, find_nsys, home
from nsysflow.nsys.program import Nsys
from nsysflow.nsys.run import ImporterProblem, Trial, importer_problem, may_sample, try_nsys
from nsysflow.runs.costs import Costs, kept_costs
from nsysflow.runtime.cpu import limit_here, thread_reading, usable_cpus
from nsysflow.runtime.gpu_states import readings_here


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The GPUs of a machine.

    Attributes:
        names: their names, by index, e.g. `NVIDIA H200`.
        driver: the driver's version, e.g. `580.95.05`; None if it does not answer.
        cuda: the newest CUDA that the driver supports, e.g. (13, 0); None if it does not answer.
        problem: why no GPU can be used, in NVML's words; None if one can.
    """

    names: tuple[str, ...] = ()
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    problem: str | None = None


def gpus() -> Gpus:
    """Ask NVML, which takes about 10 ms and does not start CUDA."""
    import pynvml  # takes 5 ms, and only profile and doctor need it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    try:
        return _gpus_of(pynvml)
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    finally:
        pynvml.nvmlShutdown()


def _gpus_of(nvml: Any) -> Gpus:
    driver = nvml.nvmlSystemGetDriverVersion()
    version = nvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0, 12040 is 12.4
    names = tuple(
        nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(nvml.nvmlDeviceGetCount())
    )
    return Gpus(
        names=names,
        driver=driver,
        cuda=(version // 1000, version % 1000 // 10),
        problem=None if names else "the driver sees no GPU",
    )


def find_torchrun() -> Path | None:
    """The torchrun on PATH, else the one beside this Python; None if neither exists."""
    beside = str(Path(sys.executable).parent)
    path = shutil.which("torchrun") or shutil.which("torchrun", path=beside)
    return Path(path) if path else None


CAP_SYS_ADMIN: Final = 21
CAP_PERFMON: Final = 38
"""Linux's numbers of the capabilities that allow reading performance counters."""

_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_DRIVER_OPTIONS: Final = Path("/proc/driver/nvidia/params")
_STATUS: Final = Path("/proc/self/status")
_ADMIN_ONLY: Final = re.compile(r"^(?:RmProfilingAdminOnly|\S*RestrictProfiling\S*): *(\d)", re.M)
"""Drivers show the option under the first name; the module calls it by the second."""

_CUDA_BUILD: Final = re.compile(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", re.M)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What was seen.

    Attributes:
        python: its version.
        nsysflow: its version.
        nsys: the nsys that `profile` would use, or why there is none.
        importer: why that nsys cannot import what it records, judged by its folders.
        trial: the result of a trial run; None if there was none.
        gpus: the GPUs and their driver.
        packages: versions of nvtx, torch and triton, if this Python has them.
        torch_cuda: the CUDA that torch was built for; None for a CPU build.
        samples: whether nsys may sample the CPU, by its own account; None if it does not say.
        paranoid: `kernel.perf_event_paranoid`; None if it cannot be read.
        capabilities: the numbers of this process's capabilities.
        readings: what NVML says of the first GPU's clocks, power, temperature and traffic, by name;
            None if it does not answer.
        cpus: how many CPUs this process may use.
        cpu_limit: the limit of its control group, in CPUs; None without one.
        counts_waits: whether the kernel counts how long threads wait for a CPU.
        admin_only: whether only administrators may read GPU counters; None if unknown.
        temp: the folder for temporary files, where nsys writes what it records.
        temp_free_bytes: the free space there.
        torchrun: where it is; None if it was not found.
        libraries: the folder for libraries that nsys needs and the system lacks.
        home: the user's home folder, shown as `~`.
        costs: what recording cost earlier programs here.
    """

    python: str
    nsysflow: str
    nsys: Nsys | CaptureError
    importer: ImporterProblem | None = None
    trial: Trial | None = None
    gpus: Gpus
    packages: dict[str, str] = field(default_factory=dict)
    torch_cuda: str | None = None
    samples: bool | None = None
    paranoid: int | None = None
    capabilities: frozenset[int] = frozenset()
    readings: dict[str, int | None] | None = None
    cpus: int | None = None
    cpu_limit: float | None = None
    counts_waits: bool = False
    admin_only: bool | None = None
    temp: Path
    temp_free_bytes: int
    torchrun: Path | None = None
    libraries: Path
    home: Path
    costs: Costs = field(default_factory=dict)


def look_at_machine() -> Machine:
    """Look at this machine and try its nsys, which takes a second or two."""
    nsys: Nsys | CaptureError
    importer, trial = None, None
    try:
        nsys = find_nsys()
    except CaptureError as error:
        nsys = error
    else:
        importer = importer_problem(nsys)
        trial = try_nsys(nsys) if importer is None else None
    temp = Path(gettempdir())
    limit = limit_here()
    return Machine(
        python=platform.python_version(),
        nsysflow=nsysflow.__version__,
        nsys=nsys,
        importer=importer,
        trial=trial,
        gpus=gpus(),
        packages=_packages("nvtx", "torch", "triton"),
        torch_cuda=_torch_cuda(),
        samples=may_sample(nsys) if isinstance(nsys, Nsys) else None,
        paranoid=_paranoid(_PARANOID),
        capabilities=_capabilities(_STATUS),
        readings=readings_here(),
        cpus=usable_cpus(),
        cpu_limit=None if limit is None else limit / 1000,
        counts_waits=thread_reading() is not None,
        admin_only=_admin_only(_DRIVER_OPTIONS),
        temp=temp,
        temp_free_bytes=shutil.disk_usage(temp).free,
        torchrun=find_torchrun(),
        libraries=Places.here().cache / "lib",
        home=home(),
        costs=kept_costs(),
    )


def _packages(*names: str) -> dict[str, str]:
    """Versions of the packages that are installed. None is imported."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _torch_cuda() -> str | None:
    """The CUDA that torch's `version.py` names. It is read, not imported: importing torch takes
    1.3 s (docs/facts.md)."""
    try:
        file = Path(str(distribution("torch").locate_file("torch/version.py")))
    except PackageNotFoundError:
        return None
    match = _CUDA_BUILD.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    return match[1] if match else None


def _paranoid(file: Path) -> int | None:
    return int(file.read_text(encoding="ascii")) if file.is_file() else None


def _capabilities(status: Path) -> frozenset[int]:
    """The effective capabilities, from Linux's mask: root in a container often lacks most."""
    text = status.read_text(encoding="utf-8") if status.is_file() else ""
    mask = re.search(r"^CapEff:\s*([0-9a-f]+)", text, re.M)
    held = int(mask[1], 16) if mask else 0
    return frozenset(bit for bit in range(held.bit_length()) if held >> bit & 1)


def _admin_only(options: Path) -> bool | None:
    match = _ADMIN_ONLY.search(options.read_text(encoding="utf-8")) if options.is_file() else None
    return match[1] != "0" if match else None
