"""Help pages: what a rule, a cause, a bound, a term, a table or a column means."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.concepts import Concept, bounds_in_full, causes_in_full, terms_in_full
from nsysflow.analysis.findings.explanation import Explanation, explanations
from nsysflow.analysis.tables.index import ABOUT, NAMES, declaration, declarations
from nsysflow.base.names import printable
from nsysflow.base.units import wrapped
from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.layout import Block
from nsysflow.report.text import set_block
from nsysflow.report.verdict import LOSSES, WORDS

WIDTH_MAX: Final = 100
"""Columns of a sentence; longer lines are hard to read. Tables take the whole width."""

_POINT: Final = "- "


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Sentences, each beside the name of what it says."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Prose:
    """A paragraph under a heading; the heading may be empty."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Points:
    """A list under a heading. `numbered` where the order matters."""

    title: str
    items: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines that stay as they are, to be copied: code or commands."""

    title: str
    lines: tuple[str, ...]


Part = Facts | Prose | Points | Lines | Block


@dataclass(frozen=True, kw_only=True)
class Explained:
    """One thing explained.

    Attributes:
        kind: what it is, e.g. `cause of idle time`.
        title: its name, or a sentence.
        parts: what is said, in this order.
    """

    kind: str
    title: str
    parts: tuple[Part, ...]


def set_explained(explained: Explained, width: int) -> Iterator[Text]:
    """The lines of it, for a terminal of `width` columns."""
    room = min(width, WIDTH_MAX)
    yield Text(printable(explained.kind), style="dim")
    yield from (Text(line, style="bold") for line in wrapped(printable(explained.title), room))
    for part in explained.parts:
        match part:
            case Facts():
                yield from _facts(part, room)
            case Prose():
                yield from _titled(part.title, wrapped(printable(part.text), room - 2))
            case Points():
                yield from _titled(part.title, _points(part, room - 2))
            case Lines():
                yield from _titled(part.title, part.lines)
            case Block():
                yield from set_block(part, width)


def _titled(title: str, lines: "list[str] | tuple[str, ...]") -> Iterator[Text]:
    """A heading and indented lines; nothing without lines."""
    if not lines:
        return
    yield Text()
    if title:
        yield Text(title, style="bold")
    yield from (Text(f"  {line}".rstrip()) for line in lines)


def _facts(facts: Facts, room: int) -> Iterator[Text]:
    """The names on the left; each name once, however many sentences it has."""
    rows = [(name, text) for name, text in facts.rows if text]
    if not rows:
        return
    yield Text()
    indent = max(len(name) for name, _ in rows) + 2
    before = ""
    for name, text in rows:
        shown = "" if name == before else name
        before = name
        for index, line in enumerate(wrapped(printable(text), room - indent)):
            yield Text(f"{'' if index else shown:{indent}}{line}")


def _points(points: Points, room: int) -> list[str]:
    lines = []
    for number, item in enumerate(points.items, start=1):
        mark = f"{number}. " if points.numbered else _POINT
        for index, line in enumerate(wrapped(printable(item), room - len(mark))):
            lines.append(f"{' ' * len(mark) if index else mark}{line}")
    return lines


def pages_of(name: str) -> Iterator[Explained]:
    """A page for each thing that has this name."""
    if name in CAUSES:
        yield _cause(name)
    if name in bounds_in_full():
        yield _in_words(name, "bound", bounds_in_full()[name])
    if name in terms_in_full():
        yield _in_words(name, "term", terms_in_full()[name])
    if name in explanations():
        yield _rule(name, explanations()[name])
    if name in ABOUT:
        yield _table(name)
    tables = _with_column(name)
    if tables:
        yield _column(name, tables)


def _with_column(name: str) -> list[str]:
    """The tables that have a column, in the order in which people read them."""
    return [table for table in NAMES if name in declaration(table).schema]


def code_of(explanation: Explanation) -> tuple[Part, Part]:
    """The example before and after."""
    before, after = (
        text.strip("\n").split("\n") for text in (explanation.before, explanation.after)
    )
    return Lines(title="Example, before", lines=tuple(before)), Lines(
        title="Example, after", lines=tuple(after)
    )


def _cause(name: str) -> Explained:
    cause, concept = CAUSES[name], causes_in_full()[name]
    shown = Facts(
        rows=(
            ("on the page", cause.label),
            ("column", f"{name}_ns, in {', '.join(_with_column(f'{name}_ns'))}"),
            ("as a bound", "a phase is bound by it where it is the largest part of its time"),
            *_found_by(concept),
        )
    )
    return Explained(
        kind="cause of idle time",
        title=f"{name}: {concept.meaning}",
        parts=(*_in_full(concept), shown, *_shown_by(["gap_summary", "gaps"])),
    )


def _in_words(name: str, kind: str, concept: Concept) -> Explained:
    shown = Facts(rows=tuple(_found_by(concept)))
    return Explained(
        kind=kind,
        title=f"{name}: {concept.meaning}",
        parts=(
            *_in_full(concept, "What is behind it" if kind == "term" else _CAUSED),
            shown,
            *_shown_by(concept.tables),
        ),
    )


_CAUSED: Final = "What usually causes it"


def _in_full(concept: Concept, usual: str = _CAUSED) -> tuple[Part, ...]:
    spec = f" (docs/spec.md {concept.spec})" if concept.spec else ""
    return (
        Prose(title="How it is counted", text=f"{concept.reckoned}{spec}"),
        Points(title=usual, items=concept.usual),
        Points(title="What to do", items=concept.remedies),
    )


def _found_by(concept: Concept) -> Iterator[tuple[str, str]]:
    yield "findings", ", ".join(concept.rules)


def _rule(name: str, explanation: Explanation) -> Explained:
    causes = ", ".join(f"{each} ({CAUSES[each].label})" for each in explanation.causes)
    return Explained(
        kind="finding",
        title=f"{name}: {explanation.about}",
        parts=(
            Prose(title="Why it costs time", text=explanation.why),
            *code_of(explanation),
            Points(title="Sure signs", items=explanation.signs),
            Points(title="When to leave it", items=explanation.leave),
            Facts(rows=(("causes", causes),)),
            *_shown_by(explanation.tables),
        ),
    )


def _table(name: str) -> Explained:
    declared = declaration(name)
    schema = declared.schema
    return Explained(
        kind="table",
        title=f"{name}: {ABOUT[name]}",
        parts=(
            Prose(title="", text=schema.about),
            Facts(rows=tuple(schema.meanings.items())),
            Facts(rows=(("if it is empty", declared.filled_by),)),
            *_shown_by([name]),
        ),
    )


def _column(name: str, tables: list[str]) -> Explained:
    """What a column means, each meaning once with the tables in which it has it."""
    of_meaning: dict[str, list[str]] = {}
    for table in tables:
        of_meaning.setdefault(declaration(table).schema.meanings[name], []).append(table)
    meanings = Points(
        title="What it means",
        items=tuple(f"in {', '.join(where)}: {text}" for text, where in of_meaning.items()),
    )
    cause = name.removesuffix("_ns")
    listed = [table for table in tables if table in ABOUT]
    more = cause if cause in CAUSES else (*listed, _whole(tables[0]))[0]
    see = [f"nsysflow analyze REPORT --table {table} --columns {name}" for table in listed[:1]]
    return Explained(
        kind="column",
        title=name,
        parts=(
            meanings,
            Facts(rows=(("unit", _unit(name)), ("more", f"nsysflow explain {more}"))),
            Lines(title="To see it", lines=tuple(see)),
        ),
    )


def _whole(part: str) -> str:
    """The listed table that a table belongs to."""
    return next((each.name for each in declarations() if part in each.parts), part)


def _unit(column: str) -> str:
    if column.endswith("_ns"):
        return "nanoseconds, a whole number; empty where it was not measured"
    if column.endswith("_pct"):
        return "percent, 0 to 100; empty where it was not measured"
    if column == "bytes":
        return "bytes; empty where it was not measured"
    return ""


def _shown_by(tables: "list[str] | tuple[str, ...]") -> tuple[Part, ...]:
    lines = tuple(f"nsysflow analyze REPORT --table {table}" for table in tables)
    return (Lines(title="To see the numbers", lines=lines),)


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
                    "nsysflow explain 1 REPORT         one finding in full",
                    "nsysflow explain sync             a cause of idle time",
                    "nsysflow explain scalar-readback  a kind of finding",
                    "nsysflow explain syncs            a table and its columns",
                ),
            ),
        ),
    )


_OF_RANKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(["tp", "dp", "pp", "ep", "groups"], "rank_group"),
    **dict.fromkeys(["late from", "lateness"], "late"),
    **dict.fromkeys(["bus", "bus bandwidth", "algorithm", "slow link"], "bus_bandwidth"),
}
"""Words of pages of several ranks."""

_SPELLED: Final[Mapping[str, str]] = {
    **{
        word.casefold(): name
        for words in (LOSSES, WORDS)
        for name, word in reversed(words.items())  # of two names with one word, the first counts
    },
    **_OF_RANKS,
    "of roofline": "roofline",
}
"""The words of the page, and the names that they stand for."""


def known_as(typed: str) -> str | None:
    """The name that is meant, in any case: `host-bound` and `waiting in a sync` are causes. None
    where nothing is called so."""
    names = {name for each in names_by_kind().values() for name in each}
    word = typed.strip().casefold()
    found = (word, word.replace("-", "_"), _SPELLED.get(word), f"{word}_ns")
    return next((name for name in found if name in names), None)
