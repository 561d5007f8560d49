"""Programs that stand in for nsys, in folders that stand in for a machine."""

import shutil
from pathlib import Path

from nsysflow.nsys.installations import Places
from nsysflow.nsys.program import Nsys


def fake_nsys(path: Path, version: str = "2025.3.1", body: str = "") -> Path:
    """A program that prints `version` when asked, and else runs the shell script `body`."""
    answer = (
        f'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit; fi'
    )
    return script(path, f"{answer}\n{body}")


def broken_nsys(path: Path) -> Path:
    """A program that fails, like a CUDA toolkit's nsys without Nsight Systems."""
    return script(path, "echo 'Nsight Systems has not been installed' >&2; exit 1")


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def places(root: Path, *, named: str | None = None, machine: str = "x86_64") -> Places:
    """A machine under `root`; `root/path` is its PATH."""
    return Places(
        named=named, path=str(root / "path"), root=root, cache=root / "cache", machine=machine
    )


def an_nsys(path: Path, *options: str, library_path: Path | None = None) -> Nsys:
    """An nsys as `find` would describe it."""
    return Nsys(
        path=path,
        version=(2025, 3, 1),
        version_text="2025.3.1.90-1v0",
        origin="in a test",
        library_path=library_path,
        options=frozenset(options),
    )


def nsight_compute(root: Path, version: str, *, nsys: str, machine: str = "x86_64") -> Path:
    """The host folder of an Nsight Compute that contains an nsys of that version."""
    host = root / "opt/nvidia/nsight-compute" / version / "host"
    target, importer = {
        "x86_64": ("target-linux-x64", "linux-desktop-glibc_2_11_3-x64"),
        "aarch64": ("target-linux-sbsa-armv8", "linux-desktop-t210-a64"),
    }[machine]
    where = 'dirname "$(readlink -f "$0")"'
    fake_nsys(host / target / "nsys", nsys, f'cat "$({where})"/../host-linux-*/QdstrmImporter')
    (host / target / "libcupti.so.13.0").touch()
    (host / target / "libnvlog.so").symlink_to("libcupti.so.13.0")
    script(host / importer / "QdstrmImporter", "echo imported")
    return host


def real_elf(path: Path) -> Path:
    """A program that is not a script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = shutil.which("true")
    assert found is not None
    shutil.copy(found, path)
    return path
