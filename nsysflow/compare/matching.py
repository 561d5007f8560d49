"""Which rows of two sides are the same thing, although lines of the program moved."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from nsysflow.base.names import SourceLine
from nsysflow.compare.sides import Key

Pair = tuple[Key | None, Key | None]
"""A row of the base and of the new side; None where a side does not have it."""


def matched(base: Iterable[Key], new: Iterable[Key]) -> list[Pair]:
    """The rows of both sides in pairs, those of the base first.

    Equal rows belong together. Of the others, those that differ in their line alone: first of the
    same file and function, then of the same function. Several of one function go by their lines.
    """
    base_keys, new_keys = list(base), list(new)
    both = set(base_keys) & set(new_keys)
    pairs: dict[Key, Key] = {key: key for key in both}
    left = [key for key in base_keys if key not in both]
    right = [key for key in new_keys if key not in both]
    for identity in (_in_same_function, _in_function_of_name):
        pairs |= _paired(left, right, identity)
        left = [key for key in left if key not in pairs]
        taken = set(pairs.values())
        right = [key for key in right if key not in taken]
    return [(key, pairs.get(key)) for key in base_keys] + [(None, key) for key in right]


def _paired(
    left: Sequence[Key], right: Sequence[Key], identity: Callable[[Key], Key | None]
) -> dict[Key, Key]:
    """The rows that have the same identity, in the order of their lines."""
    groups: dict[Key, tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for side, keys in enumerate((left, right)):
        for key in sorted(keys, key=_line_number):
            same = identity(key)
            if same is not None:
                groups[same][side].append(key)
    return {
        mine: other
        for ours, theirs in groups.values()
        for mine, other in zip(ours, theirs)  # noqa: B905
    }


def _in_same_function(key: Key) -> Key | None:
    """What a row is, whatever the number of its line; None without a function."""
    line = SourceLine.of(key.source)
    if line is None or not line.function:
        return None
    return replace(key, source=_without_number(line), via=_same_via(key.via))


def _in_function_of_name(key: Key) -> Key | None:
    """What a row is, whatever its line and file; None without a function."""
    line = SourceLine.of(key.source)
    if line is None or not line.function:
        return None
    return replace(key, source=line.function, via="")


def _same_via(text: str) -> str:
    line = SourceLine.of(text)
    return text if line is None else _without_number(line)


def _without_number(line: SourceLine) -> str:
    return f"{line.file} {line.function}"


def _line_number(key: Key) -> int:
    line = SourceLine.of(key.source)
    return 0 if line is None else line.number
