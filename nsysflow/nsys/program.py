"""An nsys: its version, what it supports, and what it needs to run."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
    """

    path: Path
    version: tuple[int, ...]
    version_text: str
    origin: str
    cupti: tuple[int, int] | None = None
    library_path: Path | None = None
    options: frozenset[str] = frozenset()
    longest_period: int | None = None

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
    periods = _PERIOD.search(page)
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
