"""An nsys program: its version, what it knows, and what it needs in order to run."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsysflow.nsys.folders import newest_cupti, target_folder

ANSWER_WITHIN_S: Final = 30
"""nsys answers `--version` in 10 ms; a cold network file system takes longer."""

LAST_NVTX: Final = (0, 2, 11)
"""The last nvtx that nsys 2023.4 records; of 0.2.12 and later it leaves no range, without a word.
nsys 2025.3 records 0.2.16."""

_MISSES_NVTX: Final = (2023, 4)
"""The newest nsys seen to miss ranges of an nvtx after `LAST_NVTX`; between it and 2025.3, which
records 0.2.16, nothing is known."""

_VERSION: Final = re.compile(r"version (\d+(?:\.\d+)+\S*)")
_OPTION: Final = re.compile(r"--[a-z][a-z-]+")


class DidNotStart(Exception):
    """A program that does not start, or is no nsys; the message is what it said."""


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """An nsys that starts.

    Attributes:
        path: what to start.
        version: e.g. (2025, 3, 1).
        version_text: the same as nsys writes it, e.g. `2025.3.1.90-253135822126v0`.
        origin: how it was found, e.g. `on PATH`.
        cupti: the newest CUDA that its CUPTI knows, e.g. (13, 0); None when that cannot be seen.
        library_path: a folder of libraries that its importer needs and the system may lack.
        options: what its `--help` names; empty when it named none.
    """

    path: Path
    version: tuple[int, ...]
    version_text: str
    origin: str
    cupti: tuple[int, int] | None = None
    library_path: Path | None = None
    options: frozenset[str] = frozenset()

    def offers(self, option: str) -> bool:
        """Whether it takes `option`; assumed when its help is not known."""
        return not self.options or option in self.options

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables it must be given besides those of `base`, ours when None."""
        if self.library_path is None:
            return {}
        rest = (os.environ if base is None else base).get("LD_LIBRARY_PATH")
        paths = [str(self.library_path), *([rest] if rest else [])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(paths)}


def version_of(path: Path) -> str:
    """The version an nsys gives itself, e.g. `2023.4.4.54-234433681190v0`.

    Raises:
        DidNotStart: it does not start, or is no nsys.
    """
    said = _said(path, "--version")
    found = _VERSION.search(said)
    if found is None:
        raise DidNotStart(said or "nothing")
    return found[1]


def described(path: Path, origin: str, *, library_path: Path | None = None) -> Nsys:
    """What there is to know of the nsys at `path`.

    Raises:
        DidNotStart: it does not start, or is no nsys.
    """
    text = version_of(path)
    target = target_folder(path)
    return Nsys(
        path=path,
        version=version_numbers(text),
        version_text=text,
        origin=origin,
        cupti=None if target is None else newest_cupti(target),
        library_path=library_path,
        options=frozenset(_options(path)),
    )


def misses_new_nvtx(nsys: str) -> bool:
    """Whether an nsys of this version, if it is known, may miss the ranges of a new nvtx."""
    return version_numbers(nsys)[:2] <= _MISSES_NVTX


def records_nvtx(nvtx: str, *, nsys: str) -> bool:
    """Whether the ranges of an nvtx reach a report of that nsys: see `LAST_NVTX`."""
    return version_numbers(nvtx) <= LAST_NVTX or not misses_new_nvtx(nsys)


def version_numbers(text: str) -> tuple[int, ...]:
    """`2025.3.1.90-253135822126v0` as (2025, 3, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", text.split("-")[0])[:3])


def too_old_for(nsys: Nsys, driver_cuda: tuple[int, int] | None) -> bool:
    """Whether it knows only an older CUDA than the driver's, by the major version.

    It then records calls and copies but no kernels, and says nothing: seen with 2023.4, whose
    newest CUPTI is 12.4, on a CUDA 13 driver (docs/facts.md).
    """
    return nsys.cupti is not None and driver_cuda is not None and nsys.cupti[0] < driver_cuda[0]


def asked(path: Path, *argv: str) -> str:
    """What the nsys at `path` answers; nothing where it fails."""
    try:
        return _said(path, *argv)
    except DidNotStart:
        return ""


def _options(path: Path) -> list[str]:
    """The options of `profile` and `export`: some were renamed between versions."""
    pages = [asked(path, command, "--help") for command in ("profile", "export")]
    return _OPTION.findall(" ".join(pages))


def _said(path: Path, *argv: str) -> str:
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
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode:
        msg = f"{said or 'nothing'} (exit {done.returncode})"
        raise DidNotStart(msg)
    return said
