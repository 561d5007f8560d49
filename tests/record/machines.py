"""A healthy machine, and machines with something missing."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.program import Nsys
from nsysflow.nsys.run import ImporterProblem, Trial
from nsysflow.record.doctor import Check, Diagnosis, diagnose
from nsysflow.record.machine import Gpus, Machine
from tests.nsys.fakes import an_nsys

HOME = Path("/home/me")
NSYS = replace(an_nsys(HOME / "nsys"), cupti=(13, 0))
OLD = replace(NSYS, version=(2023, 4, 4), version_text="2023.4.4", cupti=(12, 4))
H200 = Gpus(names=("NVIDIA H200", "NVIDIA H200"), driver="580.95", cuda=(13, 0))
NO_GPU = Gpus(problem="NVML Shared Library Not Found (NVML)")
MISSING = NsysMissing("no nsys was found", "Install it", "sudo apt install nsight-systems")
BROKEN = CaptureError("nsys does not work", "See it for yourself", "nsys --version")
HEALTHY = Machine(
    python="3.12.1",
    nsysflow="0.1.0",
    nsys=NSYS,
    trial=Trial(ranges=True),
    gpus=H200,
    packages={"nvtx": "0.2.16", "torch": "2.11.0+cu130", "triton": "3.6.0"},
    torch_cuda="13.0",
    samples=True,
    paranoid=2,
    capabilities=frozenset({21, 38}),
    admin_only=True,
    temp=HOME / "tmp",
    temp_free_bytes=70_000_000_000,
    torchrun=HOME / "bin/torchrun",
    libraries=HOME / ".cache/nsysflow/lib",
    home=HOME,
)


def check(name: str, **seen: object) -> Check:
    """The check of that name, on a machine that is healthy except for what was seen."""
    (found,) = (check for check in checks(**seen) if check.check == name)
    return found


def checks(**seen: object) -> tuple[Check, ...]:
    return diagnosis(**seen).checks


def diagnosis(**seen: object) -> Diagnosis:
    return diagnose(replace(HEALTHY, **seen))  # type: ignore[arg-type]


def lacking(*libraries: str) -> ImporterProblem:
    return ImporterProblem(text="its importer lacks libraries", libraries=libraries)


def machines() -> Iterator[Machine]:
    """Machines of every kind, healthy or not."""
    nsyses: tuple[tuple[Nsys | CaptureError, Trial | None, ImporterProblem | None], ...] = (
        (NSYS, Trial(ranges=True), None),
        (NSYS, Trial(ranges=False), None),
        (OLD, Trial(problem="a trial ended with 1"), None),
        (replace(OLD, cupti=None), None, lacking("libdw.so.1")),
        (NSYS, None, ImporterProblem(text="its importer is missing")),
        (MISSING, None, None),
        (BROKEN, None, None),
    )
    torches: tuple[tuple[dict[str, str], str | None], ...] = (
        ({}, None),
        ({"nvtx": "0.2.16", "torch": "2.13.0+cpu"}, None),
        ({"nvtx": "0.2.11", "torch": "2.13.0"}, "13.0"),
    )
    poor = replace(HEALTHY, capabilities=frozenset(), samples=False, paranoid=4, torchrun=None)
    poor = replace(poor, temp_free_bytes=10_000)
    for machine, (nsys, trial, importer), gpus, (packages, cuda) in product(
        (HEALTHY, poor), nsyses, (H200, NO_GPU), torches
    ):
        machine = replace(machine, nsys=nsys, trial=trial, importer=importer, gpus=gpus)
        yield replace(machine, packages=packages, torch_cuda=cuda)
