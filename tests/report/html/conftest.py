"""A browser for the tests of pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import started


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    yield from started()
