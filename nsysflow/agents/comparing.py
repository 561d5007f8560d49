"""`diff`: did it get faster, and why?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsysflow.agents.answer import WIDTH, Answer, plain_text
from nsysflow.agents.reports import Reports
from nsysflow.base.errors import SelectionError
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared
from nsysflow.compare.over_time import over_time
from nsysflow.report.diff.document import diff_json
from nsysflow.report.diff.over_time import rows, table
from nsysflow.report.diff.page import page
from nsysflow.report.diff.sentences import require_comparable
from nsysflow.report.terminal import set_block
from nsysflow.runs.captures import sides_of


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changed between two sides, as `nsysflow diff --json` prints it.

    Attributes:
        comparison: `text` is the verdict. `bridge.parts` say what changed in the mean step, the
            largest change first; of each part, its first `rows` and `phases`.
    """

    comparison: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class History:
    """Captures in a row, as `nsysflow diff --json` prints more than two.

    Attributes:
        captures: a row each, with its steps, and the change since the first and the one before.
    """

    captures: tuple[dict[str, Any], ...]


def diff(
    reports: Reports, base: Sequence[str], new: Sequence[str], *, limit: int, force: bool
) -> Answer[Difference]:
    """Compare captures from before and after a change.

    Raises:
        SelectionError: a side has no capture, or the sides should not be compared.
    """
    if not base or not new:
        seen = f"{'base' if not base else 'new'} names no capture"
        raise SelectionError(seen, "Name at least one capture on each side")
    before, after = _sides(reports, (base, new))
    found = compared(before, after)
    require_comparable([found], force=force)
    document = _shortened(json.loads(diff_json(found)), limit)
    text = plain_text(page(found, width=WIDTH, full=False))
    return Answer(text=text, data=Difference(comparison=document))


def diff_over_time(reports: Reports, captures: Sequence[str], *, force: bool) -> Answer[History]:
    """Compare each of several captures with the first and the one before.

    Raises:
        SelectionError: there are fewer than two captures, or they should not be compared.
    """
    (alone,) = _sides(reports, (captures,))
    if len(alone) < 2:
        raise SelectionError("this is one capture", "Name two or more captures")
    stages = over_time(alone)
    require_comparable((each.since_first for each in stages), force=force)
    text = plain_text(set_block(table(stages), WIDTH))
    return Answer(text=text, data=History(captures=tuple(rows(stages))))


def _sides(reports: Reports, sides: Sequence[Sequence[str]]) -> list[list[Capture]]:
    """The captures of each side."""
    paths = [[reports.folder.inside(each) for each in side] for side in sides]
    every = [path for side in paths for path in side]
    counts = tuple(len(side) for side in paths)
    return reports.once(("captures", counts), every, lambda: sides_of(paths))


def _shortened(document: dict[str, Any], limit: int) -> dict[str, Any]:
    """The document of a comparison with the first rows and phases of each part."""
    bridge = document["bridge"]
    parts = [
        {**part, "rows": part["rows"][:limit], "phases": part["phases"][:limit]}
        for part in bridge["parts"]
    ]
    return {**document, "bridge": {**bridge, "parts": parts, "phases": bridge["phases"][:limit]}}
