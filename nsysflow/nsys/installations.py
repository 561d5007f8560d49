"""Which nsys to use, and where to look for one, also inside Nsight Compute."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Self

from nsysflow.base.atomic import staged
from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.program import DidNotStart, Nsys, by_version, describe, version_of

INSTALLED: Final = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems-*/bin/nsys",
)
"""Nsight Systems from NVIDIA's packages, and in CUDA toolkits."""

IN_NSIGHT_COMPUTE: Final = (
    "opt/nvidia/nsight-compute/*/host",
    "usr/local/cuda*/nsight-compute-*/host",
)
"""Nsight Compute's host folders, which contain an nsys."""


def home() -> Path:
    """The user's home, or the folder for temporary files: a container's user may have no home."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())


def user_cache() -> Path:
    """nsysflow's folder in the user's cache; it need not exist."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else home() / ".cache") / "nsysflow"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where to look.

    Attributes:
        named: the value of `$NSYSFLOW_NSYS`.
        path: the value of `$PATH`.
        cuda_home: the CUDA toolkit that `$CUDA_HOME` names.
        root: `/`; the patterns above are relative to it.
        cache: nsysflow's folder in the user's cache.
        machine: the processor, as `platform.machine()` names it.
    """

    named: str | None = None
    path: str = ""
    cuda_home: Path | None = None
    root: Path
    cache: Path
    machine: str = "x86_64"

    @classmethod
    def here(cls) -> Self:
        """The places of this machine, from its environment."""
        cuda_home = os.environ.get("CUDA_HOME")
        return cls(
            named=os.environ.get("NSYSFLOW_NSYS") or None,
            path=os.environ.get("PATH", os.defpath),
            cuda_home=Path(cuda_home) if cuda_home else None,
            root=Path("/"),
            cache=user_cache(),
            machine=platform.machine(),
        )

    def installed(self) -> Iterator[Path]:
        """Every nsys in the usual folders."""
        for pattern in INSTALLED:
            yield from self.root.glob(pattern)
        if self.cuda_home is not None:
            yield from self.cuda_home.glob("bin/nsys")

    def nsight_compute(self) -> Iterator[Path]:
        """The host folders of every Nsight Compute."""
        for pattern in IN_NSIGHT_COMPUTE:
            yield from self.root.glob(pattern)

    @property
    def libraries(self) -> Path | None:
        """The folder with libraries for nsys that the system lacks, if the user made one."""
        folder = self.cache / "lib"
        return folder if folder.is_dir() else None


@dataclass(frozen=True, kw_only=True)
class _Names:
    """The names of the two folders: where nsys looks, and in Nsight Compute."""

    target: str
    host: str
    host_in_compute: str


_VERSION: Final = re.compile(r"nsight-compute[-/](\d+(?:\.\d+)*)")

_NAMES: Final = {
    "x86_64": _Names(
        target="target-linux-x64",
        host="host-linux-x64",
        host_in_compute="linux-desktop-glibc_*-x64",
    ),
    # the names in NVIDIA's packages for ARM servers; not tried on one
    "aarch64": _Names(
        target="target-linux-sbsa-armv8",
        host="host-linux-armv8",
        host_in_compute="linux-desktop-*-a64",
    ),
}


def in_nsight_compute(places: Places) -> Nsys | None:
    """The nsys of the newest Nsight Compute whose nsys starts, as a copy in the cache, or None.

    Raises:
        CaptureError: it cannot be copied.
    """
    names = _NAMES.get(places.machine)
    if names is None:
        return None
    for folder in sorted(places.nsight_compute(), key=_version, reverse=True):
        target = folder / names.target
        host = max(folder.glob(names.host_in_compute), key=by_version, default=None)
        if host is None:
            continue
        try:
            version = version_of(target / "nsys")
            copy = places.cache / f"nsys-{version.split('-')[0]}"
            _copy(target, host, copy, names)
            origin = f"inside Nsight Compute, {folder.parent}"
            program = copy / target.name / "nsys"
            return describe(program, origin, library_path=places.libraries)
        except DidNotStart:
            continue
    return None


def _version(folder: Path) -> list[int]:
    """A key that sorts the newest Nsight Compute last, regardless of the CUDA toolkit it is in."""
    match = _VERSION.search(str(folder))
    return [int(number) for number in match[1].split(".")] if match else []


def _copy(target: Path, host: Path, copy: Path, names: _Names) -> None:
    """Make `copy`, with a copy of `target` and a link to `host`, unless it is there already.

    Raises:
        CaptureError: the cache cannot be written.
    """
    link = copy / names.host
    try:
        if not (copy / target.name).is_dir():
            copy.parent.mkdir(parents=True, exist_ok=True)
            _make(target, host, copy, names)
        elif not link.is_dir():  # Nsight Compute has moved
            with staged(link) as fresh:
                fresh.symlink_to(host)
    except OSError as error:
        raise CaptureError(
            f"the nsys inside Nsight Compute ({target}) works only as a copy, and {copy} cannot be"
            f" written: {error}",
            "Set XDG_CACHE_HOME to a folder with room; these disks have some",
            "df -h",
        ) from error


def _make(target: Path, host: Path, copy: Path, names: _Names) -> None:
    try:
        with staged(copy) as scratch:
            scratch.mkdir()
            (scratch / names.host).symlink_to(host)
            shutil.copytree(target, scratch / target.name, symlinks=True)
    except OSError:
        if not (copy / target.name).is_dir():  # else another process was first
            raise


def find_nsys(asked: Path | None = None, *, places: Places | None = None) -> Nsys:
    """The nsys to use: the one asked for, else the one on PATH, else the newest installed, else the
    one inside Nsight Compute, as a working copy in the user's cache.

    Args:
        asked: a program's path, or its name on PATH; `$NSYSFLOW_NSYS` when None.
        places: where to look; this machine when None.

    Raises:
        NsysMissing: there is none.
        CaptureError: the one asked for does not start, or the one inside Nsight Compute cannot be
            copied.
    """
    places = places or Places.here()
    if asked is not None:
        return _asked_for(str(asked), "--nsys", places)
    if places.named is not None:
        return _asked_for(places.named, "$NSYSFLOW_NSYS", places)
    path = _on_path(places) or _newest_installed(places) or in_nsight_compute(places)
    if path is None:
        raise _missing(places)
    return path


def _asked_for(name: str, by: str, places: Places) -> Nsys:
    program = shutil.which(name, path=places.path)
    if program is None:
        raise CaptureError(
            f"{name}, the nsys that {by} names, is not a program that can be started",
            "See what is there",
            f"ls -l {quote(name)}",
        )
    try:
        return describe(Path(program).absolute(), f"named by {by}", library_path=places.libraries)
    except DidNotStart as error:
        raise CaptureError(
            f"{program}, the nsys that {by} names, does not work; it said: {error}",
            "See it for yourself",
            f"{quote(program)} --version",
        ) from error


def _on_path(places: Places) -> Nsys | None:
    program = shutil.which("nsys", path=places.path)
    if program is None:
        return None
    try:
        return describe(Path(program).absolute(), "on PATH", library_path=places.libraries)
    except DidNotStart:
        return None


def _newest_installed(places: Places) -> Nsys | None:
    """The newest that starts. A CUDA toolkit's nsys may be a script that only says that Nsight
    Systems was not installed."""
    installations = []
    for program in places.installed():
        with suppress(DidNotStart):
            installations.append(
                describe(program, "the newest installed", library_path=places.libraries)
            )
    return max(installations, key=lambda nsys: nsys.version, default=None)


def _missing(places: Places) -> NsysMissing:
    nvidia, local = places.root / "opt/nvidia", places.root / "usr/local"
    toolkits = [f"{local}/cuda*", *([str(places.cuda_home)] if places.cuda_home else [])]
    return NsysMissing(
        "no working nsys was found: not on PATH, in"
        f" {nvidia}/nsight-systems*, in a CUDA toolkit ({', '.join(toolkits)}) or inside Nsight"
        f" Compute ({nvidia}/nsight-compute)",
        "If you have one, name it with --nsys or $NSYSFLOW_NSYS. If not, install it with the CUDA"
        " toolkit or from NVIDIA's apt repository",
        "sudo apt install nsight-systems",
    )
