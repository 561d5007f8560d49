"""The share of padding in a model's input.

A batch of sequences is filled up to the longest one, or to a fixed length. A model takes as long
for padding as for tokens. We copy the ids of a few calls to the host, and read the copies some
steps later, so that nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import DEEPEST, MOST_INPUTS, calling_line, copied_to_host, values_in
from nsysflow.runtime.looks import About, Look, ModuleGroup, most_lines
from nsysflow.runtime.protocol import PADDED_INPUT
from nsysflow.runtime.regions import Padded, captures_graph

_MOST_STEPS: Final = 8
"""A look takes so many steps, …"""

_MOST_CALLS: Final = 16
"""… and reads the ids of at most so many calls."""

_PATIENCE: Final = 50
"""After so many steps we drop copies that have not arrived."""

_LEAST_SHARE: Final = 0.1
"""Less padding is not noted."""

_SHORTEST: Final = 16
"""Shorter rows are not sequences."""

_MOST_IDS: Final = 1 << 20
"""Of a larger batch we read only the first rows."""

_USUAL: Final = "input_ids"
"""The usual name of the argument with the ids."""

_MASK: Final = 1
"""The largest value of masks and one-hot vectors."""


class _Batch(NamedTuple):
    """The ids of a call, on their way from the GPU.

    Attributes:
        about: of the models.
        ids: rows of ids in the host's memory.
        arrived: completes once the ids are there; None if they were on the CPU.
    """

    about: About
    ids: Any
    arrived: Any

    def is_here(self) -> bool:
        """Whether the ids can be read."""
        return self.arrived is None or bool(self.arrived.query())


class _Models(ModuleGroup):
    """The models of one class whose calls have ranges of one name.

    Attributes:
        steps: the steps with a call.
        lengths: per call, the rows' lengths without padding, and the width of the batch.
    """

    def __init__(self, about: About, model: Any) -> None:
        super().__init__(about, model)
        self.steps: set[int] = set()
        self.lengths: list[tuple[list[int], int]] = []

    def row(self, of: int) -> Padded:
        """Their row in the mark; `of` is the number of weights of all outermost modules."""
        counts = len(self.steps), len(self.lengths)
        return (*self.head(of), *counts, *self.positions(), most_lines(self.lines))

    def positions(self) -> tuple[int, int, int, int, int, int]:
        """Six counts.

        - positions in all rows
        - positions that are padding
        - padding behind the longest row of its batch
        - padding that would be left if each batch had rows of similar length
        - pairs of positions within a row
        - pairs of tokens within a row
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
    """Measures padding.

    Most rows of a padded batch end with the same value, or begin with it. That value is the
    padding, as often as it stands there in a row.
    """

    kind = PADDED_INPUT

    def _end(self) -> None:
        super()._end()
        self._batches: list[_Batch] = []
        self._models: dict[About, _Models] = {}

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
        """Copy the ids of an outermost call."""
        if not phase or len(self._batches) >= _MOST_CALLS or captures_graph():
            return None
        models = self._group_of(module, self._models, _Models)
        ids = self._ids_in(args, kwargs)
        if ids is None:
            return None
        ids = ids.detach()[: max(1, _MOST_IDS // ids.shape[1])]
        self._batches.append(_Batch(models.about, *copied_to_host(self._torch, ids)))
        models.lines[calling_line()] += 1
        models.steps.add(self._step)
        return None

    def _ids_in(self, args: Any, kwargs: Any) -> Any:
        """The first tensor of ids among the arguments of a call; None if there is none."""
        named = kwargs.get(_USUAL)
        values = islice(values_in((named, args, kwargs), DEEPEST), MOST_INPUTS)
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
        for about, ids, _ in self._batches:
            lengths = self._lengths_of(ids)
            if lengths:
                self._models[about].lengths.append((lengths, ids.shape[1]))
        return [
            models.row(self._weights_in(about[2]))
            for about, models in self._models.items()
            if models.lengths and _is_padded(models.positions())
        ]

    def _lengths_of(self, ids: Any) -> list[int]:
        """Each row's length without padding. Empty for masks, and where all rows are one value."""
        if int(ids.max()) <= _MASK:
            return []
        ends = (self._lengths_before(ids), self._lengths_before(ids.flip(1)))
        lengths = min(ends, key=sum)
        return lengths if any(lengths) else []

    def _lengths_before(self, ids: Any) -> list[int]:
        """Each row's length without the padding at its end."""
        width = ids.shape[1]
        other = (ids != ids[:, -1].mode().values).flip(1)
        behind = other.int().argmax(1).masked_fill(~other.any(1), width)
        return [width - count for count in behind.tolist()]


def _is_padded(positions: tuple[int, ...]) -> bool:
    return positions[1] >= _LEAST_SHARE * positions[0]


PADDING: Final = Padding()
"""Measures padding in this process."""
