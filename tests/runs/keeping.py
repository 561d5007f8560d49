"""A cache of the test's own."""

from pathlib import Path

import pytest

from nsysflow.cli import answers
from nsysflow.runs.cache import VARIABLE, Store


def kept_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in `folder` that keeps every answer, however fast it is made."""
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setattr(answers, "WORTH_S", 0)
    store = Store.here()
    assert store is not None
    return store
