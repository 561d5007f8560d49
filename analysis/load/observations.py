"""Notes on what our runtime saw in the program: what torch.compile gave up on, and how modules are
used. No recording shows that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from nsysflow.analysis.load.marks import decoded_or_none, of_mark
from nsysflow.analysis.load.private_names import public_module
from nsysflow.analysis.trace import (
    Note,
    NoteKind,
    PaddedModule,
    RepeatedModule,
    SeenModule,
    UnchangedModule,
    UnusedModule,
)
from nsysflow.base.names import one_line
from nsysflow.base.units import percent
from nsysflow.runtime.protocol import (
    PADDED_INPUT,
    REPEATED_CALLS,
    UNCHANGED_CALLS,
    UNUSED_GRADIENTS,
)

_Text = Annotated[str, msgspec.Meta(max_length=300)]


class GaveUp(msgspec.Struct):
    """What torch.compile gave up on, or never compiled.

    Attributes:
        gave_up: of each the function, its place, and the guard that no longer held; of what was
            never compiled only the line that calls torch.compile, the others empty.
    """

    gave_up: list[tuple[_Text, _Text, _Text]]


SeenModules = Mapping[str, Sequence[SeenModule]]
"""Modules by what was seen of them: the keys of `SEEN`, and the rows of each."""

_GAVE_UP: Final = msgspec.json.Decoder(GaveUp)
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KINDS: Final[dict[str, type[SeenModule]]] = {
    UNUSED_GRADIENTS: UnusedModule,
    REPEATED_CALLS: RepeatedModule,
    PADDED_INPUT: PaddedModule,
    UNCHANGED_CALLS: UnchangedModule,
}
_MODULES: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(list[of])  # type: ignore[valid-type]
    for kind, of in _KINDS.items()
}


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


def modules_in(json: bytes | msgspec.Raw) -> SeenModules:
    """What the JSON under our key says of modules."""
    return modules_of_parts(decoded_or_none(_PARTS, json) or {})


def modules_of_mark(text: str) -> SeenModules:
    """What the text of a mark says of modules."""
    return modules_of_parts(of_mark(_PARTS, text) or {})


def modules_of_parts(parts: dict[str, msgspec.Raw]) -> SeenModules:
    """What an object says of modules; its values are JSON."""
    known = {kind: part for kind, part in parts.items() if kind in _MODULES}
    read = {kind: decoded_or_none(_MODULES[kind], part) for kind, part in known.items()}
    return {kind: modules for kind, modules in read.items() if modules is not None}


def modules_without_private(text: str) -> SeenModules | None:
    """What the text of a mark says of modules, without private names; None if nothing."""
    seen = modules_of_mark(text)
    return {kind: [*map(public_module, modules)] for kind, modules in seen.items()} or None


def modules_of_notes(notes: Iterable[Note]) -> SeenModules:
    """The modules that notes are about, in their order."""
    modules = [note.module for note in notes if note.module is not None]
    return {kind: [one for one in modules if type(one) is of] for kind, of in _KINDS.items()}


def last_modules(marks: Iterable[tuple[int | None, str]]) -> list[SeenModules]:
    """What the last mark of each process and kind says of modules; rows are (process, text)."""
    last: dict[int | None, dict[str, Sequence[SeenModule]]] = {}
    for process, text in marks:
        last.setdefault(process, {}).update(modules_of_mark(text))
    return [*last.values()]


def on_modules(seen: Iterable[SeenModules]) -> Iterator[Note]:
    """A note for each module, kind by kind."""
    of_kinds = [*seen]
    listed = (row for kind in _MODULES for one in of_kinds for row in one.get(kind, ()))
    yield from map(module_note, dict.fromkeys(listed))


def module_note(module: SeenModule) -> Note:
    """The note about a module."""
    name = one_line(module.name)
    match module:
        case UnusedModule():
            why = (
                "an optimizer clears gradients unread that the backward pass for another one"
                " computes"
                if module.thrown
                else "no optimizer uses the gradients that backward computes"
            )
            kind, text = NoteKind.UNUSED_GRADIENTS, f"{why}, of {name}: {module.weights:,} weights"
        case RepeatedModule():
            kind = NoteKind.REPEATED_CALLS
            text = f"{name} is called again with the very same input within a step"
        case PaddedModule():
            kind = NoteKind.PADDED_INPUT
            share = percent(100 * module.padding / max(1, module.positions))
            text = f"{share} of {name}'s input is padding"
        case UnchangedModule():
            kind = NoteKind.UNCHANGED_CALLS
            text = f"{name} computes the same result in every step"
    return Note(kind, text, module=module)
