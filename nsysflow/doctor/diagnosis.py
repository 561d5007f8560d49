"""What works on a machine, and what to type first. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from nsysflow.doctor.checks import Check, checks_of, kineto_works
from nsysflow.doctor.machine import Machine
from nsysflow.nsys import Nsys, too_old_for


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
