"""Of many ranks: which are looked at whole, and what is said of the others."""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

from nsysflow.analysis.declared.notes import Note, NoteKind
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.base.names import some_of
from nsysflow.report.results import typical_report

K = TypeVar("K")
V = TypeVar("V")

MANY: Final = 8
"""More reports than this are many: only some are looked at whole. Eight are the ranks of a node."""

OUTLIERS: Final = 3
"""So many outliers are looked at whole, beside the typical rank."""

_MOST_NAMES: Final = 4
"""So many ranks are named in one note."""


def looked_at(ranks: Ranks) -> frozenset[str]:
    """The reports to look at whole, by name: the typical rank's, and those of the outliers."""
    outlying = dict.fromkeys(map(ranks.report_of, ranks.outlying))
    typical = typical_report(ranks)
    return frozenset([typical, *islice((one for one in outlying if one != typical), OUTLIERS)])


def notes_of_others(digests: Sequence[Digest], whole: Collection[str]) -> list[Note]:
    """What is to be known of the ranks that are not looked at whole: which of them fail a check,
    and a note of each kind that no rank looked at has."""
    others = [each for each in digests if each.report not in whole]
    said = {note.kind for each in digests if each.report in whole for note in each.notes}
    unfit = _by_key((failed.check, each.report) for each in others for failed in each.failed)
    noted = _by_key(
        (note.kind, (each.report, note.text))
        for each in others
        for note in each.notes
        if note.kind not in said
    )
    return [
        *(
            Note(NoteKind.UNFIT_RANKS, f"{_some(names)} cannot be judged: {check}")
            for check, names in unfit.items()
        ),
        *(
            Note(kind, f"{_some(name for name, _ in found)}: {found[0][1]}")
            for kind, found in noted.items()
        ),
    ]


def _by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _some(names: Iterable[str]) -> str:
    return some_of([*dict.fromkeys(names)], _MOST_NAMES)
