"""Write docs/tables.md from the declarations: every frame, what a row is, its columns; and each
cause and kind of finding.
Write the names of all columns too, for completion.

`make docs` runs it; a test fails when the file is behind.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Final

import polars as pl

from nsysflow.analysis import causes, schema
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.analysis.tables.table import Table

PAGE: Final = Path(__file__).with_name("tables.md")
COLUMN_NAMES: Final = Path(__file__).parents[1] / "analysis" / "tables" / "column_names.py"

_HEADER: Final = """\
# Frames and tables

Made by `make docs` from the table modules in `analysis/tables/index.py`, and from
`analysis/schema.py`. Edit those, not this page.

Times are int64 nanoseconds since the session started, intervals are half-open. A column that ends
in `_ns` is a whole number of nanoseconds, one in `_pct` is 0..100. What was not measured is null,
never 0.
"""


def page() -> str:
    """The whole of docs/tables.md."""
    return "\n".join(
        [
            _HEADER,
            "## Tables\n",
            "What the analysis returns and the reports write. `process` is the OS pid.\n",
            *(_table(table) for table in declarations()),
            "## Causes of idle time\n",
            "In the order that breaks ties (spec §3).\n",
            _causes(),
            "## Kinds of findings\n",
            "The values of `rule` in [findings](#findings). `nsysflow explain RULE` says why each"
            " costs time, what to change and when not to; spec §16 says how each is found.\n",
            _rules(),
            "## Canonical frames\n",
            "What a loader fills in. A `process` or `thread` is an opaque key, unique in the"
            " report.\n",
            *(
                _frame(name, frame)
                for name, frame in vars(schema).items()
                if isinstance(frame, schema.Frame)
            ),
        ]
    )


def _table(table: Table) -> str:
    frame = table.schema
    parts = [f"### {table.name}\n", frame.about, "", _columns(frame, frame.meanings)]
    if table.name not in ABOUT:
        (whole,) = (each.name for each in declarations() if table.name in each.parts)
        parts[1] = f"A part of [{whole}](#{whole}). {frame.about}"
    return "\n".join(parts)


def _frame(name: str, frame: schema.Frame) -> str:
    return "\n".join([f"### {name}\n", frame.about, "", _columns(frame)])


def _columns(frame: schema.Frame, meanings: Mapping[str, str] | None = None) -> str:
    """The columns with their types, and with what they mean where that is given."""
    heads = ["column", "type", *(["meaning"] if meanings else [])]
    rows = [heads, ["---"] * len(heads)]
    for column, dtype in frame.items():
        meant = [meanings[column]] if meanings else []
        rows.append([f"`{column}`", _type(dtype), *meant])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _type(dtype: pl.DataType) -> str:
    if dtype == schema.CAUSE:
        return "[a cause](#causes-of-idle-time)"
    if isinstance(dtype, pl.Enum):
        return ", ".join(f"`{word}`" for word in dtype.categories)
    return type(dtype).__name__  # str() of a Categorical differs between polars versions


def _causes() -> str:
    rows = "".join(
        f"| `{cause.name}` | {cause.meaning} | {cause.label} |\n" for cause in causes.DECLARED
    )
    return f"| cause | meaning | on screens |\n| --- | --- | --- |\n{rows}"


def _rules() -> str:
    rows = "".join(f"| `{rule}` | {known.about} |\n" for rule, known in explanations().items())
    return f"| rule | what it finds |\n| --- | --- |\n{rows}"


def column_names() -> str:
    """The whole of analysis/tables/column_names.py."""
    causes_ns = {f"{cause}_ns" for cause in causes.CAUSES}
    names = sorted({column for table in declarations() for column in table.schema} - causes_ns)
    listed = fill(" ".join(names), width=96, break_on_hyphens=False)
    return (
        '"""The columns of all tables, but for the causes. Made by `make docs`."""\n\n'
        "from typing import Final\n\n"
        f'COLUMN_NAMES: Final = """\\\n{listed}\n"""\n'
    )


if __name__ == "__main__":
    for file, text in ((PAGE, page()), (COLUMN_NAMES, column_names())):
        file.write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {file.name}\n")
