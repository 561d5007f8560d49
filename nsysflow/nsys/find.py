"""Which nsys to use."""

import shutil
from contextlib import suppress
from pathlib import Path
from shlex import quote

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.nsight_compute import in_nsight_compute
from nsysflow.nsys.places import Places
from nsysflow.nsys.program import DidNotStart, Nsys, describe


def find(asked: Path | None = None, *, places: Places | None = None) -> Nsys:
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
    found = _on_path(places) or _newest_installed(places) or in_nsight_compute(places)
    if found is None:
        raise _missing(places)
    return found


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
    found = []
    for program in places.installed():
        with suppress(DidNotStart):
            found.append(describe(program, "the newest installed", library_path=places.libraries))
    return max(found, key=lambda nsys: nsys.version, default=None)


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
