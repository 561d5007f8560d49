"""The nsys of this machine, for tests that need a real one."""

import os

import pytest

from nsysflow.errors import NsysMissing
from nsysflow.nsys import Nsys, find


def real_nsys() -> Nsys:
    """The nsys that nsysflow finds; skips the test without one, and fails it where one must be."""
    try:
        return find()
    except NsysMissing:
        if "NSYSFLOW_REQUIRE_NSYS" in os.environ:
            pytest.fail("NSYSFLOW_REQUIRE_NSYS is set, and there is no nsys")
        pytest.skip("no nsys here; .ci/nsys unpacks one, NSYSFLOW_NSYS names it")
