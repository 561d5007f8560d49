"""How much of what models are given is padding.

Sequences are filled up to the longest one of their batch, or to a fixed length, and a model takes
as long for padding as for tokens. The ids of a few calls are copied aside, and read once the GPU is
past them: nothing waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import copied_to_host, weights_of
from nsysflow.runtime.looks import Look
from nsysflow.runtime.places import LETTERS, calling_line, class_of, place_of, unwrapped
from nsysflow.runtime.protocol import PADDED_INPUT
from nsysflow.runtime.regions import Padded, captures_graph

_MOST_STEPS: Final = 8
"""So many steps are looked at, …"""

_MOST_CALLS: Final = 16
"""… and so many calls in them."""

_PATIENCE: Final = 50
"""So many steps later all has been read, or is forgotten."""

_LEAST_SHARE: Final = 0.1
"""Less padding is not noted."""

_SHORTEST: Final = 16
"""Shorter rows are no sequences, …"""

_MOST_IDS: Final = 1 << 20
"""… and of larger batches only the first rows are read."""

_MOST_INPUTS: Final = 64
"""So many arguments of a call are looked through at most, …"""

_DEEPEST: Final = 3
"""… also in lists and dicts, but not deeper than that."""

_MOST_LINES: Final = 3

_USUAL: Final = "input_ids"
"""What libraries call the ids that a language model is given."""

_MASK: Final = 1
"""The largest value of masks and one-hot vectors."""


class _Batch(NamedTuple):
    """The ids of a call, on their way from the GPU.

    Attributes:
        key: of the models to which it was given.
        ids: rows of ids in the host's memory.
        arrived: the event behind the copy; None where nothing had to be copied.
    """

    key: tuple[str, str]
    ids: Any
    arrived: Any

    def is_here(self) -> bool:
        """Whether the ids can be read."""
        return self.arrived is None or bool(self.arrived.query())


class _Models:
    """The models of a class with ranges of a name, and what they were given.

    Attributes:
        weights: how many each has, by its id.
        place: the lines of their `forward`.
        lines: those that call them.
        steps: those with a call.
        lengths: without padding, of the rows of each call, and how long all of these are.
    """

    def __init__(self, model: Any) -> None:
        self.weights: dict[int, int] = {}
        self.place = place_of(type(unwrapped(model)))
        self.lines: Counter[str] = Counter()
        self.steps: set[int] = set()
        self.lengths: list[tuple[list[int], int]] = []

    def row(self, key: tuple[str, str], of: int) -> Padded:
        """What is noted of them; `of` is how many weights all models with such ranges have."""
        name, phase = (word[:LETTERS] for word in key)
        places = [self.place] if self.place else []
        counts = sum(self.weights.values()), of, len(self.steps), len(self.lengths)
        lines = [line for line, _ in self.lines.most_common(_MOST_LINES)]
        return (name, name, phase, places, *counts, *self.positions(), lines)

    def positions(self) -> tuple[int, int, int, int, int, int]:
        """All positions; those of padding, …

        - … and those of them behind the longest row of their batch
        - those of padding if batches were made of rows of like length
        - pairs of positions in a row, and those of tokens
        """
        rows = [(length, width) for lengths, width in self.lengths for length in lengths]
        widths, real = sum(width for _, width in rows), sum(length for length, _ in rows)
        behind = sum((width - max(own)) * len(own) for own, width in self.lengths)
        in_order = sorted(length for length, _ in rows)
        size = max(1, round(len(rows) / max(1, len(self.lengths))))
        batches = [in_order[at : at + size] for at in range(0, len(in_order), size)]
        left = sum(batch[-1] * len(batch) for batch in batches) - real
        pairs = sum(width * width for _, width in rows)
        of_tokens = sum(length * length for length, _ in rows)
        return widths, widths - real, behind, left, pairs, of_tokens


class Padding(Look):
    """Looks for padding in a few steps.

    Padding is what rows of ids have in common at one of their ends: a value that most rows end (or
    begin) with, as often as it stands there.
    """

    kind = PADDED_INPUT

    def _end(self) -> None:
        super()._end()
        self._batches: list[_Batch] = []
        self._models: dict[tuple[str, str], _Models] = {}

    def _go_on(self, age: int) -> None:
        self.looking = self.looking and age < _MOST_STEPS
        if self.looking or not self._models:
            return
        if all(one.is_here() for one in self._batches):
            self._note(self._rows())
            self._end()
        elif age > _PATIENCE:
            self._end()

    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        """Note what a module is given that is in no other call."""
        if phase and len(self._batches) < _MOST_CALLS and not captures_graph():
            with self._torch._C.DisableTorchFunction():
                self._called(module, phase, args, kwargs)
        return None

    def _called(self, model: Any, phase: str, args: Any, kwargs: Any) -> None:
        self._know(model, phase)
        key = class_of(model), phase
        models = self._models.get(key)
        if models is None:
            models = self._models[key] = _Models(model)
        if id(model) not in models.weights:
            models.weights[id(model)] = weights_of(model)
        ids = self._ids_in(args, kwargs)
        if ids is None:
            return
        ids = ids.detach()[: max(1, _MOST_IDS // ids.shape[1])]
        self._batches.append(_Batch(key, *copied_to_host(self._torch, ids)))
        models.lines[calling_line()] += 1
        models.steps.add(self._step)

    def _ids_in(self, args: Any, kwargs: Any) -> Any:
        """The first rows of ids among the arguments of a call; None if there are none."""
        named = kwargs.get(_USUAL)
        values = islice(_within((named, args, kwargs), _DEEPEST), _MOST_INPUTS)
        return next(filter(self._are_ids, values), None)

    def _are_ids(self, value: Any) -> bool:
        torch = self._torch
        return (
            type(value) is torch.Tensor
            and value.dtype in (torch.int64, torch.int32)
            and value.ndim == 2
            and value.shape[0] > 0
            and value.shape[1] >= _SHORTEST
            and value.layout is torch.strided
            and value.device.type in ("cuda", "cpu")
        )

    def _rows(self) -> list[Padded]:
        for key, ids, _ in self._batches:
            lengths = self._lengths_of(ids)
            if lengths:
                self._models[key].lengths.append((lengths, ids.shape[1]))
        return [
            models.row(key, self._weights_in(key[1]))
            for key, models in self._models.items()
            if models.lengths and _is_padded(models.positions())
        ]

    def _lengths_of(self, ids: Any) -> list[int]:
        """How long each row is without padding; none where all are alike, or no ids."""
        if int(ids.max()) <= _MASK:
            return []
        ends = (self._lengths_before(ids), self._lengths_before(ids.flip(1)))
        lengths = min(ends, key=sum)
        return lengths if any(lengths) else []

    def _lengths_before(self, ids: Any) -> list[int]:
        """How long each row is without what it has at its end of the value that most rows end
        with."""
        width = ids.shape[1]
        other = (ids != ids[:, -1].mode().values).flip(1)
        behind = other.int().argmax(1).masked_fill(~other.any(1), width)
        return [width - count for count in behind.tolist()]


def _within(values: Any, depth: int) -> Iterator[Any]:
    """All that lists and dicts hold, themselves aside."""
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        yield values
        return
    if depth >= 0:
        for one in values:
            yield from _within(one, depth - 1)


def _is_padded(positions: tuple[int, ...]) -> bool:
    return positions[1] >= _LEAST_SHARE * positions[0]


PADDING: Final = Padding()
"""What looks for padding in this process."""
