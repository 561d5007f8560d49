"""A browser for the tests of pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import started


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium. While it runs, this thread has an event loop, which other tests start
    themselves: so it ends with each file."""
    yield from started()
