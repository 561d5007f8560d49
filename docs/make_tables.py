"""Write docs/tables.md from analysis/schema.py: every frame, its sentence, its columns.

`make docs` runs it; a test fails when the file is behind. The sentences are the strings under the
assignments in schema.py, which Python itself does not keep: they are read from its source.
"""

import ast
import itertools
import sys
from pathlib import Path

import polars as pl

from nsysflow.analysis import schema

PAGE = Path(__file__).with_name("tables.md")

_HEADER = """\
# Frames and tables

Made by `make docs` from `analysis/schema.py`; edit the schemas, not this page.
"""


def sentences(source: str) -> dict[str, str]:
    """The string under each assignment of a module, by the name assigned to."""
    body = ast.parse(source).body
    found = {}
    for statement, after in itertools.pairwise(body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def page() -> str:
    """The whole of docs/tables.md."""
    source = Path(schema.__file__).read_text(encoding="utf-8")
    module_doc = ast.get_docstring(ast.parse(source)) or ""
    text = sentences(source)
    frames = {name: value for name, value in vars(schema).items() if isinstance(value, pl.Schema)}
    tables = {name: name.upper() for name in schema.TABLES}
    tables |= {"each_copy": "EACH_COPY", "collectives": "COLLECTIVES", "induced": "INDUCED"}
    tables |= {name: name.upper() for name in schema.RUN_TABLES}
    canonical = [name for name in frames if name not in tables.values()]
    parts = [
        _HEADER,
        module_doc.split("\n\n", 1)[1] + "\n",
        "## Canonical frames: what a loader fills in\n",
        *(_section(name, frames[name], text[name]) for name in canonical),
        "## Tables: what the analysis returns and the reports write\n",
        *(_section(table, frames[name], text[name]) for table, name in tables.items()),
        "## Words\n",
        *(_words(name, value, text) for name, value in vars(schema).items()),
    ]
    return "\n".join(part for part in parts if part)


def _section(name: str, columns: pl.Schema, sentence: str) -> str:
    rows = "".join(f"| `{column}` | {_type(dtype)} |\n" for column, dtype in columns.items())
    return f"### {name}\n\n{sentence}\n\n| column | type |\n| --- | --- |\n{rows}"


def _type(dtype: pl.DataType) -> str:
    if not isinstance(dtype, pl.Enum):
        return type(dtype).__name__  # str() of a Categorical differs between polars versions
    for name, value in vars(schema).items():
        if isinstance(value, pl.Enum) and value == dtype:
            return f"Enum, {name}"
    return "Enum: " + ", ".join(f"`{word}`" for word in dtype.categories)


def _words(name: str, value: object, text: dict[str, str]) -> str:
    if not isinstance(value, pl.Enum):
        return ""
    sentence = text.get(name) or text.get(f"{name}S", "")
    words = ", ".join(f"`{word}`" for word in value.categories)
    return f"- {name}: {words}." + (f" {sentence}" if sentence else "")


if __name__ == "__main__":
    PAGE.write_text(page() + "\n", encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE.name}\n")
