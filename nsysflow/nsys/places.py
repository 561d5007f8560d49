"""Where to look for an nsys, on this machine or in a test's folder."""

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

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
