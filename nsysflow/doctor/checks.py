"""What to make of a machine: pure, from what was seen to what works and what to type."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from nsysflow.doctor.machine import CAP_PERFMON, CAP_SYS_ADMIN, Machine
from nsysflow.errors import NsysMissing
from nsysflow.nsys import LAST_NVTX, Nsys, misses_new_nvtx, records_nvtx, too_old_for

Status = Literal["ok", "note", "problem"]

ENOUGH_BYTES: Final = 3_000_000_000
"""nsys wrote 2.1 GB to the temporary folder for one run with `--osrt` (docs/facts.md)."""

PARANOID_MAX: Final = 2
"""The highest `kernel.perf_event_paranoid` at which a user may sample processes of their own."""

PACKAGES: Final = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}
"""Debian's and Ubuntu's packages of what the importer inside Nsight Compute was seen to lack."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing looked at.

    Attributes:
        check: what.
        status: `problem` where it keeps profiling from working, `note` where it costs something.
        seen: a sentence or less.
        advice: what to do; what to type stands on lines of its own, indented. May be empty.
    """

    check: str
    status: Status
    seen: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What works here.

    Attributes:
        checks: all that was looked at.
        works: the commands that work, the best first.
        first: what to type first.
        profile: whether profiling a GPU works.
    """

    checks: tuple[Check, ...]
    works: tuple[str, ...]
    first: str
    profile: bool


def diagnosed(machine: Machine) -> Diagnosis:
    """Every check, and what they come to."""
    checks = tuple(_checks(machine))
    works = tuple(_works(machine))
    return Diagnosis(
        checks=checks,
        works=works,
        first=_first(machine, works),
        profile=all(check.status != "problem" for check in checks),
    )


def _checks(machine: Machine) -> Iterator[Check]:
    yield Check(
        check="python",
        status="ok",
        seen=f"Python {machine.python}, nsysflow {machine.nsysflow}",
    )
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
    if not machine.gpus.problem:
        yield _gpu_metrics(machine)
    yield _disk(machine)


def _nsys(machine: Machine) -> Check:
    nsys = machine.nsys
    if isinstance(nsys, Nsys):
        seen = f"{nsys.version_text} at {nsys.path}, {nsys.origin}"
        return Check(check="nsys", status="ok", seen=seen)
    sentences, _, to_type = str(nsys).partition("\n")
    seen, _, advice = sentences.rpartition(". ")
    instead = isinstance(nsys, NsysMissing) and _kineto_works(machine)
    return Check(
        check="nsys",
        status="note" if instead else "problem",
        seen=seen,
        advice=f"{advice}\n{to_type}",
    )


def _reports(machine: Machine) -> Check:
    """Whether nsys can record, import and export."""
    seen, advice = machine.importer, ""
    if seen is not None:
        advice = _importer_advice(seen, machine)
    elif machine.trial is not None and machine.trial.problem is not None:
        seen = machine.trial.problem
        advice = "See what it says by hand:\n  nsys profile --trace=nvtx --sample=none true"
    if seen is not None:
        return Check(check="reports", status="problem", seen=seen, advice=advice)
    return Check(check="reports", status="ok", seen="a trial was recorded, imported and exported")


def _importer_advice(problem: str, machine: Machine) -> str:
    if "librar" not in problem:
        return "Install Nsight Systems whole:\n  sudo apt install nsight-systems"
    packages = [package for library, package in PACKAGES.items() if library in problem]
    advice = f"Install what holds them, or put them into {machine.libraries}:\n"
    install, keep = "  sudo apt install", f"  mkdir -p {machine.libraries}"
    return advice + (" ".join([install, *packages]) if packages else keep)


def _gpu(machine: Machine) -> Check:
    gpus = machine.gpus
    if gpus.problem is not None:
        advice = (
            "Profile where a GPU is; if one is here, its driver must answer, and a container needs"
            " --gpus all:\n  nvidia-smi"
        )
        return Check(check="gpu", status="problem", seen=gpus.problem, advice=advice)
    kinds = [f"{gpus.names.count(name)} x {name}" for name in dict.fromkeys(gpus.names)]
    return Check(
        check="gpu",
        status="ok",
        seen=f"{', '.join(kinds)}, driver {gpus.driver}, CUDA {_dotted(gpus.cuda)}",
    )


def _cuda(nsys: Nsys, driver: tuple[int, int]) -> Check:
    """Whether nsys knows the driver's CUDA."""
    knows, has = _dotted(nsys.cupti), _dotted(driver)
    if nsys.cupti is None:
        seen = f"which CUDA this nsys knows cannot be seen; the driver's is {has}"
        advice = "If a report holds launches and no kernels, take a newer nsys"
        return Check(check="cuda", status="note", seen=seen, advice=advice)
    if too_old_for(nsys, driver):
        seen = (
            f"this nsys knows CUDA up to {knows}, and the driver's is {has}: no kernels would be"
            " recorded, and nothing said"
        )
        advice = (
            "Install a newer one, or record with torch.profiler:\n"
            "  sudo apt install nsight-systems\n"
            "  nsysflow profile WORKLOAD --collector kineto"
        )
        return Check(check="cuda", status="problem", seen=seen, advice=advice)
    seen = f"this nsys knows CUDA up to {knows}, the driver's is {has}"
    return Check(check="cuda", status="ok", seen=seen)


def _nvtx(machine: Machine) -> Check:
    """Whether ranges of the nvtx package reach the report."""
    version = machine.packages.get("nvtx")
    nsys = machine.nsys if isinstance(machine.nsys, Nsys) else None
    old = nsys is not None and misses_new_nvtx(nsys.version_text)
    last = _dotted(LAST_NVTX)
    install = f"  pip install 'nvtx<={last}'" if old else "  pip install nvtx"
    if version is None and machine.torch_cuda is not None:
        seen = "none: ranges go through torch.cuda.nvtx, which leaves out their payloads"
        return Check(check="nvtx", status="ok", seen=seen)
    if version is None:
        seen = "none: nsysflow.region and steps mark nothing, the workloads have no phases"
        return Check(check="nvtx", status="note", seen=seen, advice=f"Install it:\n{install}")
    tried = machine.trial is not None and machine.trial.problem is None
    lost = (
        not machine.trial.ranges
        if tried and machine.trial
        else nsys is not None and not records_nvtx(version, nsys=nsys.version_text)
    )
    if not lost:
        seen = f"{version}, and its ranges reach the report" if tried else version
        return Check(check="nvtx", status="ok", seen=seen)
    shown = nsys.version_text if nsys is not None else ""
    return Check(
        check="nvtx",
        status="note",
        seen=f"{version}, and nsys {shown} records none of its ranges, without a word",
        advice=(
            f"Of nsys 2023.4 it is known that it takes nvtx up to {last}, of 2025.3 that it takes"
            f" 0.2.16; take an older nvtx or a newer nsys:\n  pip install 'nvtx<={last}'"
        ),
    )


def _torch(machine: Machine) -> Iterator[Check]:
    torch, triton = machine.packages.get("torch"), machine.packages.get("triton")
    if torch is None:
        seen = "none: the built-in workloads need it, other programs do not"
        advice = "Install it:\n  pip install torch"
        yield Check(check="torch", status="note", seen=seen, advice=advice)
        return
    if machine.torch_cuda is not None:
        seen = f"{torch}, built for CUDA {machine.torch_cuda}"
        yield Check(check="torch", status="ok", seen=seen)
    elif machine.gpus.problem:
        yield Check(check="torch", status="ok", seen=f"{torch}, a build for CPUs")
    else:
        seen = f"{torch}, a build for CPUs: it cannot use this GPU"
        advice = "Install one for CUDA:\n  pip install --force-reinstall torch"
        yield Check(check="torch", status="note", seen=seen, advice=advice)
    if triton is not None:
        yield Check(check="triton", status="ok", seen=triton)
    elif machine.torch_cuda is not None:
        seen = "none: the fused kernels and torch.compile need it"
        yield Check(
            check="triton", status="note", seen=seen, advice="Install it:\n  pip install triton"
        )


def _torchrun(machine: Machine) -> Check:
    if machine.torchrun is not None:
        return Check(check="torchrun", status="ok", seen=f"{machine.torchrun}, for --nproc")
    return Check(
        check="torchrun",
        status="note",
        seen="none: --nproc needs it",
        advice="It comes with torch:\n  pip install torch",
    )


def _backtraces(machine: Machine) -> Check:
    """Whether the CPU may be sampled, without which nsys records no Python frames."""
    paranoid = f"kernel.perf_event_paranoid is {machine.paranoid}"
    low = machine.paranoid is not None and machine.paranoid <= PARANOID_MAX
    allowed = low or bool(machine.capabilities & {CAP_SYS_ADMIN, CAP_PERFMON})
    if machine.samples or (machine.samples is None and allowed):
        seen = "nsys may sample the CPU, for --backtrace"
        return Check(check="backtraces", status="ok", seen=seen)
    if allowed:  # seen in containers: the system call is filtered
        advice = "In a container, allow perf_event_open:\n  docker run --cap-add SYS_ADMIN IMAGE"
    else:
        advice = f"Allow it:\n  sudo sysctl kernel.perf_event_paranoid={PARANOID_MAX}"
    return Check(
        check="backtraces",
        status="note",
        seen=f"nsys may not sample the CPU, and --backtrace needs it ({paranoid})",
        advice=advice,
    )


def _gpu_metrics(machine: Machine) -> Check:
    """Whether the driver lets this user read the GPU's counters."""
    if CAP_SYS_ADMIN in machine.capabilities:
        seen = "an administrator may read the GPU's counters"
        return Check(check="gpu metrics", status="ok", seen=seen)
    if machine.admin_only is False:
        seen = "the driver lets every user read the GPU's counters"
        return Check(check="gpu metrics", status="ok", seen=seen)
    known = machine.admin_only is not None
    return Check(
        check="gpu metrics",
        status="note",
        seen=(
            "the driver keeps the GPU's counters to administrators (ERR_NVGPUCTRPERM)"
            if known
            else "whether this user may read the GPU's counters cannot be seen"
        )
        + ": --gpu-metrics needs them",
        advice=(
            "Run as root, a container with --cap-add SYS_ADMIN, or allow it to all and restart:\n"
            "  echo options nvidia NVreg_RestrictProfilingToAdminUsers=0"
            " | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
        ),
    )


def _disk(machine: Machine) -> Check:
    seen = f"{machine.temp_free_bytes / 1e9:,.1f} GB free in {machine.temp}"
    if machine.temp_free_bytes >= ENOUGH_BYTES:
        return Check(check="disk", status="ok", seen=seen)
    return Check(
        check="disk",
        status="note",
        seen=f"{seen}, where nsys writes while it records; one run has taken 2.1 GB",
        advice="Name a folder with room:\n  export TMPDIR=FOLDER",
    )


def _works(machine: Machine) -> Iterator[str]:
    """The commands that work, the best first."""
    nsys = machine.nsys if isinstance(machine.nsys, Nsys) else None
    failed = machine.importer or (machine.trial and machine.trial.problem)
    reports = nsys is not None and not failed
    gpu = not machine.gpus.problem
    if gpu and nsys is not None and reports and not too_old_for(nsys, machine.gpus.cuda):
        yield "profile"
    if _kineto_works(machine):
        yield "profile --collector kineto"
    if reports:
        yield "profile --on cpu"
    yield "analyze"


def _kineto_works(machine: Machine) -> bool:
    """torch.profiler records where torch can use the GPU."""
    return not machine.gpus.problem and machine.torch_cuda is not None


def _first(machine: Machine, works: tuple[str, ...]) -> str:
    """The best of what works, as a whole command line."""
    profile, *options = works[0].split(" ", maxsplit=1)
    if profile == "analyze":
        return "nsysflow demo"
    workload = "torch" in machine.packages and (machine.torch_cuda or options == ["--on cpu"])
    command = [] if workload else ["--", "python", "train.py"]
    return " ".join(
        ["nsysflow profile", *(["launch_bound"] if workload else []), *options, *command]
    )


def _dotted(version: tuple[int, ...] | None) -> str:
    return "?" if version is None else ".".join(map(str, version))
