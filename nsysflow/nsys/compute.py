"""The nsys that comes inside Nsight Compute, laid out so that it works.

It records, and then fails to import: it looks for its importer in `../host-linux-x64`, and there
that folder is called `linux-desktop-glibc_2_11_3-x64`. It goes by where it really lies, so a link
to it will not do: a folder in the user's cache holds a copy of it, and a link to the importer's
folder under the name that it looks for (docs/facts.md).
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsysflow.errors import CaptureError
from nsysflow.nsys.folders import by_version
from nsysflow.nsys.places import Places
from nsysflow.nsys.program import DidNotStart, Nsys, described, version_of


@dataclass(frozen=True, kw_only=True)
class _Names:
    """What the two folders are called, there and where nsys looks."""

    target: str
    host: str
    host_there: str


_VERSION: Final = re.compile(r"nsight-compute[-/](\d+(?:\.\d+)*)")

_NAMES: Final = {
    "x86_64": _Names(
        target="target-linux-x64", host="host-linux-x64", host_there="linux-desktop-glibc_*-x64"
    ),
    # Not tried: the names that these folders have in NVIDIA's packages for ARM servers.
    "aarch64": _Names(
        target="target-linux-sbsa-armv8", host="host-linux-armv8", host_there="linux-desktop-*-a64"
    ),
}


def in_nsight_compute(places: Places) -> Nsys | None:
    """The nsys of the newest Nsight Compute that has one which starts, laid out in the cache.

    Raises:
        CaptureError: it cannot be laid out.
    """
    names = _NAMES.get(places.machine)
    if names is None:
        return None
    for folder in sorted(places.nsight_compute(), key=_version, reverse=True):
        target = folder / names.target
        host = max(folder.glob(names.host_there), key=by_version, default=None)
        if host is None:
            continue
        try:
            version = version_of(target / "nsys")
            laid_out = _laid_out(target, host, names.host, places.cache, version.split("-")[0])
            origin = f"inside Nsight Compute, {folder.parent}"
            return described(laid_out / "nsys", origin, library_path=places.libraries)
        except DidNotStart:
            continue
    return None


def _version(folder: Path) -> list[int]:
    """A key that sorts the newest Nsight Compute last, whatever the version of the CUDA toolkit
    that it lies in."""
    found = _VERSION.search(str(folder))
    return [int(number) for number in found[1].split(".")] if found else []


def _laid_out(target: Path, host: Path, host_name: str, cache: Path, version: str) -> Path:
    """The copy of `target` in the cache, with `host` linked beside it.

    Raises:
        CaptureError: the cache cannot be written.
    """
    folder = cache / f"nsys-{version}"
    try:
        if not (folder / target.name).is_dir():
            _make(folder, target, host, host_name)
        elif not (folder / host_name).is_dir():
            _link_again(folder / host_name, host)
    except OSError as error:
        msg = (
            f"the nsys inside Nsight Compute ({target}) must be copied to where it works, and"
            f" {folder} cannot be written: {error}. Name a folder with room:\n"
            "  export XDG_CACHE_HOME=FOLDER"
        )
        raise CaptureError(msg) from error
    return folder / target.name


def _make(folder: Path, target: Path, host: Path, host_name: str) -> None:
    """Make `folder` beside, and rename it: whoever comes second keeps the first one's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        made = Path(scratch) / "nsys"
        made.mkdir()
        (made / host_name).symlink_to(host)
        shutil.copytree(target, made / target.name, symlinks=True)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / target.name).is_dir():
                raise


def _link_again(link: Path, host: Path) -> None:
    """Point the link at where Nsight Compute is now."""
    with TemporaryDirectory(prefix=f".{link.name}-", dir=link.parent) as scratch:
        fresh = Path(scratch) / "link"
        fresh.symlink_to(host)
        fresh.replace(link)
