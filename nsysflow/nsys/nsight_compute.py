"""A working copy of the nsys that comes inside Nsight Compute.

That nsys records and then fails to import: it looks for its importer in `../host-linux-x64`, but
there the folder is called `linux-desktop-glibc_2_11_3-x64`. It resolves links to itself, so a link
is not enough: a folder in the user's cache holds a copy of it, and beside it a link to the
importer's folder under the name that nsys looks for (docs/facts.md).
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsysflow.base.atomic import staged
from nsysflow.base.errors import CaptureError
from nsysflow.nsys.folders import by_version
from nsysflow.nsys.places import Places
from nsysflow.nsys.program import DidNotStart, Nsys, describe, version_of


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
    found = _VERSION.search(str(folder))
    return [int(number) for number in found[1].split(".")] if found else []


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
