"""Write docs/compatibility.md from compatibility.toml: which versions of nsys are known, what their
exports lack, and what that changes, which is found by reading a report without it.

`make docs` runs it; a test fails when the page is behind.
"""

import lzma
import sqlite3
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec
import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.load.dispatch import load
from nsysflow.analysis.load.export_tables import SAMPLED, TABLES
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT, TablesOfReport
from nsysflow.analysis.trace import Trace

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "compatibility.md"
MOST_TABLES: Final = 13
"""More changed tables than these are counted, not named."""

Schema = tuple[int, ...]


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One version of nsys, and how its exports are known."""

    nsys: str
    known: Literal["recorded", "exported", "documented"]
    by: str
    schema: str | None = None


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table or columns that older exports lack, and the report that shows what that changes."""

    table: str
    shown_by: str
    columns: tuple[str, ...] = ()
    called: str | None = None
    since: str | None = None
    between: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return self.called or ".".join((self.table, *self.columns))

    def is_in(self, schema: str) -> bool | None:
        """Whether exports of a schema have it; None if that is not known."""
        asked = numbers(schema)
        if self.since is not None:
            return asked >= numbers(self.since)
        assert self.between is not None, self.name
        without, with_it = map(numbers, self.between)
        return True if asked >= with_it else False if asked <= without else None


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a report was recorded, and whether that is understood."""

    name: str
    works: str
    tested_by: tuple[str, ...]


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of compatibility.toml."""

    notes: str
    versions: tuple[Version, ...]
    parts: tuple[Part, ...]
    setups: tuple[Setup, ...]


def known() -> Known:
    """The data, checked against what the loader reads."""
    text = PAGE.with_suffix(".toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), Known)
    read = {table.name for table in (*TABLES.values(), *SAMPLED.values())}
    assert {part.table for part in found.parts} <= read, "the loader reads no such table"
    return found


def numbers(schema: str) -> Schema:
    """`3.10.0` as (3, 10, 0)."""
    return tuple(map(int, schema.split(".")))


_HEADER: Final = """\
# Compatibility

Made by `make docs` from [compatibility.toml](compatibility.toml). Edit that, not this page.

## Exports of nsys

*Recorded*: reports of programs on a GPU are read by our tests. *Exported*: this version wrote all
its tables, empty, and what it records without a GPU. *Documented*: from documents alone; no export
of it was read here.
"""

_LACKS: Final = """
`?`: no document says whether it is there. The schemas of 2023.1 to 2023.3, of 2024 and of the rest
of 2025 were not found: they lie between two rows, and lack at most what the row above lacks.
Changes after 3.20.3 were not found either. What nsysflow does not know is left out, with a note.

## What is lost where a part is missing

Found by reading a report of ours without the part: the causes that get other times, the tables that
are empty then, and those with other numbers. Other reports may lose more or less. *Frames* are
those of [what the loader fills in](tables.md#canonical-frames) that differ.
"""

_SETUPS: Final = """
## Set-ups

What is not tested is our reading of documents and code.
"""

_PYTHONS: Final = """
## Python and dependencies

Python 3.11 or newer. All tests run with 3.11; on 2026-11-27 the wheel was installed with 3.12 and
3.13 too, and analysed a sample; 3.14 was not at hand. `make test` takes the newest dependencies;
`make oldest` the oldest that pyproject.toml allows, in an environment of its own.
"""


def page() -> str:
    """The whole of docs/compatibility.md."""
    data = known()
    return "".join(
        [
            _HEADER,
            f"Schemas of parts: {data.notes}; else two exports, one with and one without.\n\n",
            table(("nsys", "schema", "known", "by", "lacks"), version_rows(data)),
            _LACKS,
            "\n",
            table(("part", "read without it", "frames", "changes"), map(part_row, data.parts)),
            _SETUPS,
            "\n",
            table(("set-up", "works", "tests"), map(setup_row, data.setups)),
            _PYTHONS,
        ]
    )


Row = Sequence[str]


def table(heads: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def version_rows(data: Known) -> Iterator[Row]:
    """Per version what it is known by, and which parts it lacks."""
    for version in data.versions:
        schema = version.schema
        there = {part.name: None if schema is None else part.is_in(schema) for part in data.parts}
        lacks = [f"`{name}`" for name, is_in in there.items() if is_in is False]
        lacks += [f"`{name}` ?" for name, is_in in there.items() if is_in is None]
        listed = "?" if schema is None else ", ".join(lacks) or "nothing known"
        yield version.nsys, schema or "?", version.known, version.by, listed


def part_row(part: Part) -> Row:
    """What changes in a report that lacks the part."""
    whole_trace, whole = read(part.shown_by, None)
    less_trace, less = read(part.shown_by, part)
    frames = [
        name for name in FRAMES if not same(*map(attrgetter(name), (whole_trace, less_trace)))
    ]
    changed = [name for name in whole if not whole[name].equals(less[name])]
    empty = [name for name in changed if less[name].is_empty()]
    other = [name for name in changed if name not in empty]
    spent, left = (causes_ns(tables["accounting"]) for tables in (whole, less))
    causes = [cause for cause in CAUSES if spent[cause] != left[cause]]
    said = [
        f"{what}: {', '.join(f'`{name}`' for name in names)}"
        for what, names in (("causes", causes), ("empty", empty))
        if names
    ]
    if len(other) > MOST_TABLES:
        said.append(f"other numbers: {len(other)} of {len(whole)} tables")
    elif other:
        said.append(f"other numbers: {', '.join(f'`{name}`' for name in other)}")
    named = ", ".join(f"`{name}`" for name in frames)
    return f"`{part.name}`", part.shown_by, named or "none", "; ".join(said) or "no table"


FRAMES: Final = (
    "source",
    *(name for name, kind in Trace.__annotations__.items() if "Frame" in str(kind)),
)
"""What a `Trace` holds of an export: the version that wrote it, and frames."""


def same(one: object, other: object) -> bool:
    """Whether two frames, or two texts, are equal."""
    if isinstance(one, pl.DataFrame) and isinstance(other, pl.DataFrame):
        return one.equals(other)
    return one == other


def causes_ns(accounting: pl.DataFrame) -> dict[str, int]:
    """Idle ns of each cause on all GPUs."""
    return {cause: int(accounting[f"{cause}_ns"].sum()) for cause in CAUSES}


@cache
def read(report: str, without: Part | None) -> tuple[Trace, dict[str, pl.DataFrame]]:
    """One of our reports, and all its tables, read without a part of it."""
    (packed,) = chain.from_iterable(
        (ROOT / folder).glob(f"{report}.sqlite.xz") for folder in ("samples", "tests/data")
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.sqlite"
        file.write_bytes(lzma.decompress(packed.read_bytes()))
        if without is not None:
            remove(without, file)
        trace = load(file)
    analysis = Analysis(trace, Options())
    return trace, {name: analysis.table(name) for name in ABOUT if hasattr(TablesOfReport, name)}


def remove(part: Part, file: Path) -> None:
    """Take a part out of an export, which must have it."""
    with closing(sqlite3.connect(file)) as export:
        if not part.columns:
            export.execute(f"DROP TABLE {part.table}")
        for column in part.columns:
            export.execute(f"ALTER TABLE {part.table} DROP COLUMN {column}")
        export.commit()


def setup_row(setup: Setup) -> Row:
    """Whether a set-up is understood, and by which tests."""
    tests = ", ".join(f"`{name.rpartition('/')[2]}`" for name in setup.tested_by)
    return setup.name, setup.works, tests or "not tested"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE.name}\n")
