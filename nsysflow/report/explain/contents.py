"""What can be explained, on one screen."""

from nsysflow.report.explain.explained import Explained, Facts, Lines
from nsysflow.report.explain.names import names_by_kind


def contents() -> Explained:
    """All names, and how a finding is asked for. Columns are left to their tables."""
    names = names_by_kind()
    kinds = ("causes", "bounds", "terms", "findings", "tables")
    rows = [(kind, ", ".join(names[kind])) for kind in kinds]
    return Explained(
        kind="nsysflow explain",
        title="What can be explained",
        parts=(
            Facts(rows=(*rows, ("columns", "of any table, e.g. induced_idle_ns"))),
            Lines(
                title="For example",
                lines=(
                    "nsysflow explain 1 REPORT          the first finding of a report, in full",
                    "nsysflow explain sync              a cause of idle time",
                    "nsysflow explain scalar-readback   a kind of finding",
                    "nsysflow explain syncs             a table and its columns",
                ),
            ),
        ),
    )
