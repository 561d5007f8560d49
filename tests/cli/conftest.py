"""Analyses that commands share."""

from collections.abc import Iterator

import pytest

from tests.sharing import shared_analyses


@pytest.fixture(scope="module")
def shared() -> Iterator[None]:
    """Commands on a sample share its analysis."""
    with shared_analyses():
        yield
