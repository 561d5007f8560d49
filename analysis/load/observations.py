"""Notes on what our runtime saw in the program: what torch.compile gave up on, how modules are
used, and what workers run. No recording shows that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from nsysflow.analysis.load.marks import decoded_or_none, of_mark
from nsysflow.analysis.load.private_names import public_observation
from nsysflow.analysis.observed import (
    MaskedModule,
    MergedAdapter,
    Observation,
    OrderedProducts,
    PaddedModule,
    RepeatedModule,
    SparseProducts,
    UnchangedModule,
    UnusedModule,
    WorkerCode,
)
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.names import one_line
from nsysflow.runtime.protocol import (
    MASKED_ROWS,
    MERGED_ADAPTERS,
    PADDED_INPUT,
    PRODUCT_ORDER,
    REPEATED_CALLS,
    UNCHANGED_CALLS,
    UNUSED_GRADIENTS,
    WORKER_CODE,
    ZEROS_IN_PRODUCTS,
)

_Text = Annotated[str, msgspec.Meta(max_length=300)]


class GaveUp(msgspec.Struct):
    """What torch.compile gave up on, or never compiled.

    Attributes:
        gave_up: of each the function, its place, and the guard that no longer held; of what was
            never compiled only the line that calls torch.compile, the others empty.
    """

    gave_up: list[tuple[_Text, _Text, _Text]]


Observations = Mapping[str, Sequence[Observation]]
"""What was seen, by its kind: the keys of `SEEN`, and the rows of each."""

_GAVE_UP: Final = msgspec.json.Decoder(GaveUp)
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KINDS: Final[dict[str, type[Observation]]] = {
    UNUSED_GRADIENTS: UnusedModule,
    REPEATED_CALLS: RepeatedModule,
    PADDED_INPUT: PaddedModule,
    UNCHANGED_CALLS: UnchangedModule,
    WORKER_CODE: WorkerCode,
    PRODUCT_ORDER: OrderedProducts,
    ZEROS_IN_PRODUCTS: SparseProducts,
    MERGED_ADAPTERS: MergedAdapter,
    MASKED_ROWS: MaskedModule,
}
_ROWS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(list[of])  # type: ignore[valid-type]
    for kind, of in _KINDS.items()
}

_NOTES: Final = {of: NoteKind(kind.replace("_", "-")) for kind, of in _KINDS.items()}
"""The kinds of notes, by what they are about: those of the keys in marks."""


def gave_up_in(json: bytes | msgspec.Raw) -> GaveUp | None:
    """The `GaveUp` in the JSON under our key; None if it has none."""
    return decoded_or_none(_GAVE_UP, json)


def gave_up_of_mark(text: str) -> GaveUp | None:
    """The `GaveUp` in the text of a mark; None if it has none."""
    return of_mark(_GAVE_UP, text)


def gave_up_without_guards(text: str) -> GaveUp | None:
    """The same without the guards, which have values of the program."""
    mark = gave_up_of_mark(text)
    return mark and GaveUp([(function, place, "") for function, place, _ in mark.gave_up])


def given_up(marks: Iterable[GaveUp | None]) -> Iterator[Note]:
    """A note for each function that torch.compile gave up on, and for each of its calls in a
    program of which it compiled nothing, in the order of the marks."""
    listed = (row for mark in marks if mark is not None for row in mark.gave_up)
    for function, place, guard in dict.fromkeys(listed):
        if not function:
            never = f"what torch.compile was given at {one_line(place)} never ran compiled"
            yield Note(NoteKind.NEVER_COMPILED, never)
            continue
        public = f"torch.compile gave up on {one_line(function)} ({one_line(place)})"
        why = f": it was compiled too often, the last time because {one_line(guard)} no longer held"
        text = f"{public}{why}" if guard else public
        yield Note(NoteKind.GAVE_UP_COMPILING, text, public)


def observations_in(json: bytes | msgspec.Raw) -> Observations:
    """What was seen, by the JSON under our key."""
    return observations_of_parts(decoded_or_none(_PARTS, json) or {})


def observations_of_mark(text: str) -> Observations:
    """What was seen, by the text of a mark."""
    return observations_of_parts(of_mark(_PARTS, text) or {})


def observations_of_parts(parts: dict[str, msgspec.Raw]) -> Observations:
    """What was seen, by an object whose values are JSON."""
    known = {kind: part for kind, part in parts.items() if kind in _ROWS}
    read = {kind: decoded_or_none(_ROWS[kind], part) for kind, part in known.items()}
    return {kind: rows for kind, rows in read.items() if rows is not None}


def observations_without_private(text: str) -> Observations | None:
    """The same without private names; None if nothing was seen."""
    seen = observations_of_mark(text)
    return {kind: [*map(public_observation, rows)] for kind, rows in seen.items()} or None


def observations_of_notes(notes: Iterable[Note]) -> Observations:
    """What notes are about, in their order."""
    seen = [note.seen for note in notes if note.seen is not None]
    return {kind: [one for one in seen if type(one) is of] for kind, of in _KINDS.items()}


def last_observations(marks: Iterable[tuple[int | None, str]]) -> list[Observations]:
    """What was seen, by the last mark of each process and kind; rows are (process, text)."""
    last: dict[int | None, dict[str, Sequence[Observation]]] = {}
    for process, text in marks:
        last.setdefault(process, {}).update(observations_of_mark(text))
    return [*last.values()]


def observation_notes(seen: Iterable[Observations]) -> Iterator[Note]:
    """A note on each row, kind by kind."""
    of_kinds = [*seen]
    listed = (row for kind in _ROWS for one in of_kinds for row in one.get(kind, ()))
    yield from map(note_on, dict.fromkeys(listed))


def note_on(seen: Observation) -> Note:
    """The note on what was seen."""
    return Note(_NOTES[type(seen)], seen.text, seen=seen)
