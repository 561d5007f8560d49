"""A forge for tests."""

from collections.abc import Iterator

import pytest

from tests.ci.forge_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started
