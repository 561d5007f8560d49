"""A large trace is read in pieces, with the result of reading it as a whole."""

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.kineto import document, events
from nsysflow.base.errors import NsysflowError
from tests.analysis.load.kineto.traces import REAL, call, event, function, kernel
from tests.fuzz.inputs import kineto

DOCUMENT: Final = json.loads(gzip.decompress(REAL.read_bytes()))
EVENTS: Final[list[Any]] = DOCUMENT["traceEvents"]
BESIDE: Final = {key: value for key, value in DOCUMENT.items() if key != "traceEvents"}
LAYOUTS: Final[list[dict[str, Any]]] = [{}, {"indent": 1}, {"separators": (",", ":")}]
SIZE: Final = 4000


def read(path: Path) -> nsysflow.Trace | str:
    """The trace, or the error's message."""
    try:
        return load(path)
    except NsysflowError as error:
        return str(error)


def read_both(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    """Read a trace as a whole and in pieces, expect the same, and return the number of pieces; 0 if
    it can only be read as a whole."""
    whole = read(path)
    with monkeypatch.context() as patched:
        patched.setattr(document, "PIECE_BYTES", SIZE)
        patched.setattr(events, "_MOST", 7)
        found, in_pieces = 0, read(path)
        with suppress(document.NoPieces):
            found = len([*document.pieces_of(path)])
    if isinstance(whole, str) or isinstance(in_pieces, str):
        assert in_pieces == whole
        return found
    for field in fields(whole):
        one, other = getattr(in_pieces, field.name), getattr(whole, field.name)
        if isinstance(other, pl.DataFrame):
            assert_frame_equal(one, other)
        else:
            assert one == other
    return found


def written(folder: Path, text: str) -> Path:
    path = folder / "t.json"
    path.write_text(text)
    return path


def mixed(count: int) -> list[Any]:
    """Events of all kinds of treatment, some of which are none, or lack something."""
    draw, made = Random(3), []
    for at in range(count):
        made += [
            call(10 * at, at, draw.choice(("cudaLaunchKernel", "cudaMalloc_v2"))),
            kernel(10 * at + 3, 4, f"k{at % 5}", correlation=at, grid=[at, 1, 1]),
            event("cpu_op", "aten::mm", 10 * at, 9, args={"Input Dims": [[at % 3]]}),
            function("a.py(1): f", 10 * at, 9),
            draw.choice((3, None, [kernel()], {"ph": "s", "name": "ac2g"}, kernel(device="no"))),
        ]
    return made


WRITTEN: Final[Mapping[str, dict[str, Any] | list[Any]]] = {
    "events last": {**BESIDE, "traceEvents": EVENTS},
    "events first": {"traceEvents": EVENTS, **BESIDE},
    "a list": EVENTS,
    "other values": {**BESIDE, "traceEvents": mixed(200)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("what", WRITTEN)
def test_pieces_have_what_the_whole_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, layout: dict[str, Any]
) -> None:
    path = written(tmp_path, json.dumps(WRITTEN[what], **layout))
    assert read_both(monkeypatch, path) > path.stat().st_size / SIZE / 2


NESTED: Final = [{"ph": "X", "cat": "kernel", "name": "no"}] * 500
ONLY_WHOLE: Final[Mapping[str, str]] = {
    "events in an argument": json.dumps([kernel(list=NESTED)] * 3),
    "events of something else": json.dumps({"x": {"traceEvents": EVENTS}, "traceEvents": EVENTS}),
    "a list after them": json.dumps({"traceEvents": EVENTS, "more": NESTED}),
    "the key twice": json.dumps(DOCUMENT)[:-1] + ', "traceEvents": []}',
    "the key twice, escaped": json.dumps(DOCUMENT)[:-1] + ', "trace\\u0045vents": []}',
    "another first": json.dumps({"traceEvents": 3})[:-1] + f', "traceEvents": {EVENTS!r}}}',
    "no number": json.dumps(DOCUMENT).replace('"dur": 1', '"dur": NaN, "was": 1', 1),
    "half a letter": json.dumps([*EVENTS, event("user_annotation", "a\ud800")]),
    "NULs after it": json.dumps(DOCUMENT) + "\0" * 9000,
    "two of them": json.dumps(DOCUMENT) * 2,
    "truncated": json.dumps(DOCUMENT)[:-1],
    "truncated in an event": json.dumps(DOCUMENT)[:-50_000],
    "of another type": json.dumps({"traceEvents": EVENTS, "distributedInfo": 3})[:-1] + ', "a":}',
}


@pytest.mark.parametrize("what", ONLY_WHOLE)
def test_what_has_no_safe_pieces_is_read_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    assert read_both(monkeypatch, written(tmp_path, ONLY_WHOLE[what])) == 0


@pytest.mark.parametrize("number", range(12))
def test_changed_traces_are_read_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    read_both(monkeypatch, kineto(Random(number), tmp_path).path)


def test_text_without_a_cut_is_one_piece(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    others = [dict(reversed(each.items())) for each in EVENTS]
    path = written(tmp_path, json.dumps({"traceEvents": [EVENTS[0], *others]}))
    assert read_both(monkeypatch, path) == 1
