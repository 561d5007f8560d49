"""The names that have a page: rules, causes, bounds, terms, tables, columns. Imports no polars."""

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.concepts import bounds_in_full, terms_in_full
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.tables.column_names import COLUMN_NAMES
from nsysflow.analysis.tables.index import ABOUT


def names_by_kind() -> dict[str, tuple[str, ...]]:
    """All names with a page, by what they are."""
    return {
        "causes": tuple(CAUSES),
        "bounds": tuple(bounds_in_full()),
        "terms": tuple(terms_in_full()),
        "findings": tuple(explanations()),
        "tables": tuple(ABOUT),
        "columns": tuple(sorted({*COLUMN_NAMES.split(), *(f"{cause}_ns" for cause in CAUSES)})),
    }
