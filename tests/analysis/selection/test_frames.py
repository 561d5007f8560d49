"""Frames of a timeline have the schemas that the types of its pieces name."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.selection.view import judged_view
from tests.analyses import loaded


def annotations(kind: type) -> Iterator[tuple[str, Any]]:
    """The name and the type of each property and field of a class."""
    if is_dataclass(kind):
        yield from get_type_hints(kind, include_extras=True).items()
    for name in dir(kind):
        piece = getattr(kind, name)
        compute = (
            piece.compute if isinstance(piece, computed_once) else getattr(piece, "fget", None)
        )
        if compute is not None:
            yield name, get_type_hints(compute, include_extras=True)["return"]


def frames(value: Any, kind: object) -> Iterator[tuple[pl.Schema, pl.Schema]]:
    """The schema of each frame of `value`, and the one that its type names."""
    if get_origin(kind) is dict:
        for part in value.values():
            yield from frames(part, get_args(kind)[1])
    elif get_origin(kind) is Annotated and value is not None:
        yield value.schema, get_args(kind)[1]


@pytest.mark.parametrize("name", ["h200-hf-trainer", "h200-graph-level", "h200-ddp-rank0"])
def test_frames_have_the_schemas_of_their_types(name: str) -> None:
    analysis = nsysflow.analyze(loaded(name))
    timeline, matched = analysis.timeline, Ranks.of([digest(analysis)]).matched
    judged = judged_view(timeline)
    checked = 0
    owners = (timeline, timeline.events, timeline.gap_causes, timeline.open_ranges, matched)
    for owner in (*owners, timeline.attribution, judged, judged.without_unwaited):
        for piece, kind in annotations(type(owner)):
            for schema, named in frames(getattr(owner, piece), kind):
                assert [*schema.items()] == [*named.items()], f"{type(owner).__name__}.{piece}"
                checked += 1
    assert checked > 60
