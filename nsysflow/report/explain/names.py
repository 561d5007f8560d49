"""The names that have a page: rules, causes, bounds, terms, tables, columns. Imports no polars."""

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.concepts import bounds_in_full, terms_in_full
from nsysflow.analysis.declared.tables import DECLARED, TABLES
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.tables.columns import columns_with_words


def names_by_kind() -> dict[str, tuple[str, ...]]:
    """All names with a page, by what they are."""
    tables = ("every", *(table.name for table in DECLARED))
    columns = {column for table in tables for column in columns_with_words(table)}
    return {
        "causes": tuple(CAUSES),
        "bounds": tuple(bounds_in_full()),
        "terms": tuple(terms_in_full()),
        "findings": tuple(explanations()),
        "tables": tuple(TABLES),
        "columns": tuple(sorted(columns | {f"{cause}_ns" for cause in CAUSES})),
    }
