"""Errors of SQLite and its driver about a bad file, as errors that a person can act on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Final

import polars as pl
from adbc_driver_sqlite import dbapi

from nsysflow.analysis.load.nsys_rep import export_of
from nsysflow.base.errors import Busy, Damaged, ReportError

_SIGNS_OF_DAMAGE: Final = ("malformed", "not a database", "unsupported file format", "decode")


class NotANumber(Exception):
    """A column of numbers holds something else."""


class RowsLost(Exception):
    """SQLite ended a table before its last row, without an error."""


@contextmanager
def as_report_errors(shown: str) -> Iterator[None]:
    """Turn errors of reading the export that messages call `shown` into a `ReportError`."""
    try:
        yield
    except NotANumber as error:
        raise _corrupt(shown, f"{error} holds text where numbers belong") from None
    except RowsLost as error:
        raise _corrupt(shown, str(error)) from None
    except (sqlite3.Error, dbapi.Error, pl.exceptions.ComputeError) as error:
        raise _report_error(shown, str(error)) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a corrupt schema in its message, which Python cannot decode.
        raise _corrupt(shown, "its schema is not text") from error
    except pl.exceptions.InvalidOperationError as error:
        raise _corrupt(shown, "it holds numbers that are too large") from error


def _report_error(shown: str, said: str) -> ReportError:
    if "locked" in said or "busy" in said:
        return Busy(
            f"{shown} is locked: another program is writing it",
            "Wait for it to finish, or analyse a copy",
            f"cp {quote(shown)} copy.sqlite",
        )
    if "mismatch" in said:
        return _corrupt(shown, "it holds text where numbers belong")
    if any(sign in said for sign in _SIGNS_OF_DAMAGE):
        return _corrupt(shown, f"SQLite says: {said}")
    return ReportError(f"{shown} cannot be read; SQLite says: {said}", *export_of(shown))


def _corrupt(shown: str, why: str) -> Damaged:
    return Damaged(f"{shown} is corrupt: {why}", *export_of(shown))
