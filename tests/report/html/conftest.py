"""A browser for the tests of pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import started


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A headless Chromium. While it runs, this thread has an event loop, which tests of other
    folders start themselves: so it ends with this one."""
    yield from started()
