"""Analysis and oracle of one report side by side: every table, and small pictures of one rule."""

from collections.abc import Mapping, Sequence

import nsysflow
from tests.analyses import SCHEMAS, rows_of
from tests.oracle.integrity import integrity
from tests.oracle.model import PlainTrace, side_by_side, to_trace
from tests.oracle.report import Report
from tests.oracle.report import Row as TableRow
from tests.oracle.tables import oracle_tables
from tests.tiny import Row, plain_of


def assert_agrees(
    analysis: nsysflow.Analysis, report: Report, tables: Mapping[str, list[TableRow]] | None = None
) -> None:
    """Each table has the rows of the oracle's; `tables` are those, if they are known."""
    for name, rows in (tables or oracle_tables(report)).items():
        columns = [column for column in SCHEMAS[name] if column != "class"]
        expected = rows_of(rows, columns)
        found = rows_of(getattr(analysis, name).to_dicts(), columns)
        assert list(found - expected) == list(expected - found) == [], f"{name}: {columns}"
    counts = dict(analysis.integrity.select("check", "count").rows())
    wanted = integrity(report)
    assert {check: counts.get(check, 0) for check in wanted} == wanted


Picture = PlainTrace | Sequence[Row]
"""A small trace that shows a rule, a border or a tie."""


def assert_pictures_agree(pictures: Mapping[str, Picture]) -> None:
    """The analysis of all pictures in one report is the oracle's.

    A trace of a few rows takes as long as one of a thousand. A failure names the pictures that fail
    alone too.
    """
    models = {name: _plain(picture) for name, picture in pictures.items()}
    try:
        _assert_agrees(side_by_side(models.values()))
    except AssertionError as error:
        for name, model in models.items():
            try:
                _assert_agrees(model)
            except AssertionError:
                error.add_note(f"of the picture: {name}")
        raise


def _plain(picture: Picture) -> PlainTrace:
    return picture if isinstance(picture, PlainTrace) else plain_of(*picture)


def _assert_agrees(model: PlainTrace) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))
