"""Load reports with a cache of the test's own, and compare what comes back."""

import threading
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.runs import loading
from nsysflow.runs.cache import VARIABLE, Store


def kept_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in `folder` that keeps every report, however fast it loads."""
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setattr(loading, "WORTH_S", 0)
    store = Store.here()
    assert store is not None
    return store


def load(path: Path, shapes: Shapes = True) -> Trace:
    """Load a report, and wait until it is kept."""
    trace = loading.load(path, shapes=shapes)
    wait()
    return trace


def wait() -> None:
    """Wait for the threads that keep what was loaded."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, reports come from the cache or not at all."""

    def read(path: Path, **_: object) -> Trace:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(dispatch, "load", read)


def assert_same(kept: Trace, loaded: Trace) -> None:
    """Every frame, type and word of the two is equal."""
    for field in fields(Trace):
        found, expected = getattr(kept, field.name), getattr(loaded, field.name)
        if isinstance(expected, pl.DataFrame):
            assert found.schema == expected.schema, field.name
            assert found.equals(expected), field.name
        else:
            assert found == expected, field.name
