"""What `nsysflow profile` and the program that it runs tell each other.

Down: environment variables, which every process of the program inherits. Up: one small JSON file
per process in the run's directory, read once the program has ended; and in the report itself, for
who analyses it, what is known of the captured window. Both sides import this module and nothing
else of each other's.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

CAPTURE: Final = "NSYSFLOW_CAPTURE"
"""`wait:warmup:active`, set when the report begins and ends with a window of steps."""

COLLECTOR: Final = "NSYSFLOW_COLLECTOR"
"""`nsys` or `kineto`: who records the ranges and the window."""

OPENER: Final = "NSYSFLOW_OPENER"
"""`cuda` or `nvtx`: what nsys waits for to open the window. `nvtx` is for runs without a GPU."""

OPENING_RANGE: Final = "capture"
DOMAIN: Final = "nsysflow.window"
"""The NVTX range that opens the window, and its domain, which holds no phases."""

KEY: Final = "nsysflow"
"""Under which a report says what is known of its window: in an NVTX mark's text, or at the top of a
Kineto trace."""

STEP: Final = "step"
"""The range around each step of `nsysflow.steps`."""

RUN_FOLDER: Final = "NSYSFLOW_RUN_FOLDER"
"""The run's directory, where a process leaves its file and a Kineto trace."""

RANK: Final = "LOCAL_RANK"
"""torchrun's: which of the run's processes this is."""


_UNSPEAKABLE: Final = re.compile(r"""[^ !#-\[\]-~]|<(?=U\+)""")
_SPELLED: Final = re.compile(r"<U\+([0-9A-F]{2,6})>")


def spelled(name: str) -> str:
    """A range's name in the characters that a Kineto trace keeps: `<U+FC>` stands for `ü`.

    torch 2.13 (2026-11) calls a range `unknown` whose name is not all printable ASCII, writes `/`
    for a backslash, and does not escape a quote: nobody can read the whole trace then.
    """
    return _UNSPEAKABLE.sub(lambda found: f"<U+{ord(found[0]):02X}>", name)


def unspelled(text: str) -> str:
    """The name that was `spelled`; half of a surrogate pair, which is no character, stays so."""
    return _SPELLED.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return found[0] if code in range(0xD800, 0xE000) or code > sys.maxunicode else chr(code)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which steps are captured: `wait` and `warmup` steps pass first, then `active` ones."""

    wait: int
    warmup: int
    active: int

    def __post_init__(self) -> None:
        """Refuse what no loop can do.

        Raises:
            ValueError: a number is negative, or no step is active.
        """
        if min(self.wait, self.warmup) < 0 or self.active < 1:
            msg = f"'{self}' is not WAIT:WARMUP:ACTIVE with at least one active step"
            raise ValueError(msg)

    @classmethod
    def parse(cls, text: str) -> Self:
        """`3:2:5` as a window.

        Raises:
            ValueError: it is not three numbers, or none is active.
        """
        wait, warmup, active = (int(part) for part in text.split(":"))
        return cls(wait=wait, warmup=warmup, active=active)

    def __str__(self) -> str:
        return f"{self.wait}:{self.warmup}:{self.active}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a process of the program says of itself: as it was when its first loop began, when the
    window opened or closed, or when it ended; the last of these that it came to.

    Attributes:
        pid: which process.
        at_end: whether Python ended by itself after this, and not by a signal or `os._exit`; else
            more may have happened than is counted here.
        rank: its rank under torchrun.
        versions: of python, and of torch, cuda, triton and nvtx where it has loaded them.
        gpu: the name of the GPU that it used.
        ranges: how many NVTX ranges it opened through `nsysflow.region` and `steps`.
        steps: how many steps began.
        captured: how many of them began inside the window.
        window: `never`, `open` (the program ended inside it) or `closed`, as its steps were
            counted; a profiler that waits for CUDA records none of it where there is no GPU.
        unprofiled_step_ns: mean wall time of a warm-up step, with no capture going on.
        config: what a built-in workload was given, shapes and seed with it; None of other programs.
    """

    pid: int
    at_end: bool = True
    rank: int | None = None
    versions: dict[str, str]
    gpu: str | None = None
    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: str = "never"
    unprofiled_step_ns: int | None = None
    config: dict[str, Any] | None = None


def tell(folder: Path, told: Told) -> None:
    """Leave `told` in the run's directory."""
    scratch = folder / f".told-{told.pid}"
    scratch.write_text(json.dumps(asdict(told)), encoding="utf-8")
    scratch.replace(folder / f"told-{told.pid}.json")


def told_from(found: Mapping[str, Any]) -> Told:
    """What a process said; what another version of nsysflow adds to it is left out."""
    known = {field.name for field in fields(Told)}
    return Told(**{name: value for name, value in found.items() if name in known})


def take_told(folder: Path) -> list[Told]:
    """What the processes left in the run's directory, by rank and pid; their files are removed."""
    heard = []
    for file in folder.glob("told-*.json"):
        heard.append(told_from(json.loads(file.read_text(encoding="utf-8"))))
        file.unlink()
    return sorted(heard, key=lambda told: (told.rank or 0, told.pid))


def rank() -> int | None:
    """This process's rank on its machine; None when torchrun did not start it."""
    found = os.environ.get(RANK)
    return int(found) if found is not None and found.isdecimal() else None
