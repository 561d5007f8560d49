"""Which nsys to use."""

import shutil
from contextlib import suppress
from pathlib import Path

from nsysflow.errors import CaptureError, NsysMissing
from nsysflow.nsys.compute import in_nsight_compute
from nsysflow.nsys.places import Places
from nsysflow.nsys.program import DidNotStart, Nsys, described


def find(asked: Path | None = None, *, places: Places | None = None) -> Nsys:
    """The nsys to use: the one asked for; else the one on PATH; else the newest installed; else
    the one inside Nsight Compute, for which a working folder is laid out in the user's cache.

    Args:
        asked: a program's path, or its name on PATH; `$NSYSFLOW_NSYS` when None.
        places: where to look; this machine when None.

    Raises:
        NsysMissing: there is none.
        CaptureError: the one asked for does not start, or the one inside Nsight Compute cannot be
            laid out.
    """
    places = places or Places.here()
    if asked is not None:
        return _asked_for(str(asked), "--nsys", places)
    if places.named is not None:
        return _asked_for(places.named, "$NSYSFLOW_NSYS", places)
    found = _on_path(places) or _newest_installed(places) or in_nsight_compute(places)
    if found is None:
        raise NsysMissing(_missing(places))
    return found


def _asked_for(name: str, by: str, places: Places) -> Nsys:
    program = shutil.which(name, path=places.path)
    if program is None:
        msg = (
            f"{name}, which {by} names as the nsys to use, is not a program that can be started."
            f" Name the program itself:\n  ls -l {name}"
        )
        raise CaptureError(msg)
    try:
        return described(Path(program).absolute(), f"named by {by}", library_path=places.libraries)
    except DidNotStart as said:
        msg = (
            f"{program}, which {by} names as the nsys to use, is not one that works; it said:"
            f" {said}. See what it says by hand:\n  {program} --version"
        )
        raise CaptureError(msg) from said


def _on_path(places: Places) -> Nsys | None:
    program = shutil.which("nsys", path=places.path)
    if program is None:
        return None
    try:
        return described(Path(program).absolute(), "on PATH", library_path=places.libraries)
    except DidNotStart:
        return None


def _newest_installed(places: Places) -> Nsys | None:
    """The newest of those that start. A CUDA toolkit's nsys can be a script that says only that
    Nsight Systems was not installed with it."""
    found = []
    for program in places.installed():
        with suppress(DidNotStart):
            found.append(described(program, "the newest installed", library_path=places.libraries))
    return max(found, key=lambda nsys: nsys.version, default=None)


def _missing(places: Places) -> str:
    nvidia, local = places.root / "opt/nvidia", places.root / "usr/local"
    toolkits = [f"{local}/cuda*", *([str(places.cuda_home)] if places.cuda_home else [])]
    return (
        f"no nsys was found that starts: not on PATH, in {nvidia}/nsight-systems*, in a CUDA"
        f" toolkit ({', '.join(toolkits)}), or inside Nsight Compute ({nvidia}/nsight-compute);"
        " and neither --nsys nor $NSYSFLOW_NSYS names one. Install it from NVIDIA's apt"
        " repository or with the CUDA toolkit, or name one:\n"
        "  sudo apt install nsight-systems\n"
        "  export NSYSFLOW_NSYS=PATH"
    )
