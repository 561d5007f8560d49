"""The nsys of this machine, for tests that need a real one."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from nsysflow.base.errors import NsysMissing
from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import Nsys

ATTEMPTS: Final = 3
"""nsys 2023.4 crashed about once in 70 runs, eight at a time on two cores (docs/facts.md)."""


def real_nsys() -> Nsys:
    """The nsys that nsysflow finds; without one the test is skipped, or fails if it must run."""
    try:
        return find_nsys()
    except NsysMissing:
        if "NSYSFLOW_REQUIRE_NSYS" in os.environ:
            pytest.fail("NSYSFLOW_REQUIRE_NSYS is set, and there is no nsys")
        pytest.skip("no nsys here; .ci/nsys unpacks one, NSYSFLOW_NSYS names it")


def record(argv: Sequence[str], folder: Path, **variables: str) -> Path:
    """The `.nsys-rep` that a real nsys records of a program's NVTX ranges."""
    nsys, said = real_nsys(), ""
    for attempt in range(ATTEMPTS):
        report = folder / f"{attempt}.nsys-rep"
        profile = [str(nsys.path), "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
        done = subprocess.run(
            [*profile, f"--output={report.with_suffix('')}", *argv],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and report.exists():
            return report
        said = done.stdout + done.stderr
    pytest.fail(f"nsys recorded nothing in {ATTEMPTS} attempts; it said: {said}")
