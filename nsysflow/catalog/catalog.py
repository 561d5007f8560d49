"""The built-in workloads and kernels as data, from their catalog.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import nsysflow
from nsysflow.base.errors import UnknownWorkload, near_or_all

_PACKAGE: Final = Path(nsysflow.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to do a workload's work. All variants of a workload give the same result."""

    name: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of one workload: `--kernels` sets `kernels`.

    Attributes:
        default: its value on a GPU. The option has the type of this value.
        toy: its value on a CPU, where all sizes are small.
    """

    name: str
    default: int | float
    toy: int | float
    help: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload that `nsysflow profile` can run.

    Attributes:
        phases: the ranges inside each step, in the order in which they begin.
        default: the variant that runs when none is named.
        control: whether nothing is wrong with it, so that a report must find nothing.
        ranks: how many processes torchrun starts; None for one process without torchrun.
    """

    name: str
    summary: str
    phases: tuple[str, ...]
    variants: tuple[Variant, ...]
    default: str
    control: bool = False
    ranks: int | None = None
    options: tuple[Option, ...] = ()


@cache
def workloads() -> tuple[Workload, ...]:
    """Every workload, in the order of the catalog."""
    text = (_PACKAGE / "workloads" / "catalog.toml").read_text(encoding="utf-8")
    return tuple(_workload(name, entry) for name, entry in tomllib.loads(text).items())


def find(name: str) -> Workload:
    """The workload called `name`.

    Raises:
        UnknownWorkload: there is no such workload.
    """
    by_name = {workload.name: workload for workload in workloads()}
    if name not in by_name:
        raise _unknown("workload", name, [*by_name])
    return by_name[name]


def find_variant(workload: Workload, name: str | None) -> Variant:
    """The workload's variant called `name`, or its default variant.

    Raises:
        UnknownWorkload: the workload has no such variant.
    """
    by_name = {variant.name: variant for variant in workload.variants}
    wanted = workload.default if name is None else name
    if wanted not in by_name:
        raise _unknown(f"variant of {workload.name}", wanted, [*by_name])
    return by_name[wanted]


def _workload(name: str, entry: dict[str, Any]) -> Workload:
    return Workload(
        name=name,
        summary=entry["summary"],
        phases=tuple(entry["phases"]),
        variants=tuple(Variant(name=v, summary=line) for v, line in entry["variants"].items()),
        default=entry["default"],
        control=entry.get("control", False),
        ranks=entry.get("ranks"),
        options=tuple(Option(name=o, **fields) for o, fields in entry.get("options", {}).items()),
    )


def _unknown(kind: str, name: str, known: list[str]) -> UnknownWorkload:
    advice = near_or_all(name, known, where="nsysflow list")
    return UnknownWorkload(f"there is no {kind} called {name!r}", advice)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that `nsysflow bench` can check and time.

    Attributes:
        summary: what it computes, in one line.
        variants: the implementations to compare, `ref` first.
        dtypes: the types it is benchmarked in.
    """

    name: str
    summary: str
    variants: tuple[str, ...]
    dtypes: tuple[str, ...]


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every kernel, in the order of the catalog."""
    return tuple(
        Kernel(
            name=name,
            summary=entry["summary"],
            variants=tuple(entry["variants"]),
            dtypes=tuple(entry["dtypes"]),
        )
        for name, entry in _catalog()["kernels"].items()
    )


def variants() -> Mapping[str, str]:
    """Every variant by name, with a one-line summary."""
    variants: dict[str, str] = _catalog()["variants"]
    return variants


def dtypes() -> Mapping[str, str]:
    """Every dtype by the name that is typed, with torch's name."""
    dtypes: dict[str, str] = _catalog()["dtypes"]
    return dtypes


@cache
def _catalog() -> dict[str, Any]:
    text = (_PACKAGE / "kernels" / "catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
