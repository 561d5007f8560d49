"""A folder in which programs run."""

from pathlib import Path

import pytest

from tests.runtime.inject.programs import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
