"""manifest.json: what a run was. `profile` writes it, `analyze` reads it beside the reports."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from nsysflow.errors import Damaged, ReportError
from nsysflow.handshake import Told, told_from
from nsysflow.peaks import Unit

FILE: Final = "manifest.json"
SCHEMA: Final = 1
_TOOL: Final = "nsysflow"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One run. It keeps the command line, and versions by name, but no environment.

    Attributes:
        name: what the run is called.
        workload: the built-in workload; None for any other command.
        command: the program that was profiled, as it was typed.
        argv: what was started, with nsys and torchrun around it.
        on: `cuda` or `cpu`.
        collector: `nsys` or `kineto`.
        capture: the window of steps, `wait:warmup:active`; None for the whole run.
        processes: how many ranks torchrun started; None without it.
        trace: what nsys was asked to trace.
        backtrace: whether Python lines were asked for.
        gpu_metrics: whether the GPU's counters were.
        flops_per_step: what one step of one rank computes, as it was typed; None where it was not.
        flops_dtype: in which arithmetic, as it was typed.
        git: the commit, and whether files differed from it; None outside git.
        versions: by name: nsysflow, nsys, driver, python, torch, …
        gpus: the machine's.
        started: when, in UTC.
        wall_ns: how long the program ran, nsys's import with it.
        exit_code: the program's.
        interrupted: it was stopped by SIGINT or SIGTERM.
        reports: the files to analyse, one per rank, by name.
        told: what the program's processes said of themselves.
    """

    name: str
    workload: str | None
    command: tuple[str, ...]
    argv: tuple[str, ...]
    on: str
    collector: str
    capture: str | None
    processes: int | None
    trace: tuple[str, ...]
    backtrace: bool
    gpu_metrics: bool
    git: Mapping[str, Any] | None
    versions: Mapping[str, str]
    gpus: tuple[str, ...]
    started: str
    wall_ns: int
    exit_code: int
    interrupted: bool
    reports: tuple[str, ...]
    told: tuple[Told, ...]
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json beside and rename it.

    Raises:
        OSError: it cannot be written.
    """
    held = {"schema": SCHEMA, "tool": _TOOL, **asdict(manifest)}
    scratch = folder / f".{FILE}"
    scratch.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    scratch.replace(folder / FILE)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a run's directory; None if `folder` is not one.

    Raises:
        Damaged: the file cannot be understood.
        ReportError: it may not be read.
    """
    file = folder / FILE
    try:
        if not file.is_file():
            return None
    except PermissionError:  # of a folder that one may not enter: whoever needs it will say so
        return None
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(held, dict) or held.get("tool") != _TOOL:
            return None
        known = {
            field.name: held[field.name]
            for field in fields(Manifest)
            if field.name in held or field.default is MISSING  # a later version added it
        }
        told = tuple(told_from(process) for process in held["told"])
    except PermissionError:
        msg = f"{file} cannot be read: permission denied. Allow it:\n  chmod u+r {file}"
        raise ReportError(msg) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = (
            f"{file} cannot be understood ({type(error).__name__}: {error}). Name the report"
            f" itself instead:\n  ls {folder}"
        )
        raise Damaged(msg) from error
    lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    return Manifest(**{**known, **lists, "told": told})
