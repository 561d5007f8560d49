"""What a mistyped name may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_ANY: Final = 8
"""So many names are listed where none is near."""


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names most like `name` in any case, nearest first."""
    spelled = {each.casefold(): each for each in known}
    return [spelled[each] for each in get_close_matches(name.casefold(), spelled, n=most)]


def near_or_all(name: str, known: Iterable[str], *, where: str = "") -> str:
    """The names most like `name`, else the first ones, and how many more there are: an advice for
    an error, empty where nothing is known.

    Args:
        name: what was typed.
        known: what there is.
        where: what shows all of them.
    """
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    shown = near or names[:_ANY]
    if not shown:
        return ""
    said = (
        f"Did you mean {' or '.join(near)}?"
        if near
        else f"{_there(len(names))}: {', '.join(shown)}"
    )
    more = len(names) - len(shown)
    if not more:
        return said
    said = said if near else f"{said}."
    lists = f"; {where} shows all" if where else ""
    return f"{said} {_there(more)} {more} more{lists}"


def _there(count: int) -> str:
    return "There is" if count == 1 else "There are"
