"""A module's call: where its code is, its arguments, and whatever else its result depends on."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dis import findlinestarts
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from nsysflow.runtime.recorders import nothing

UNMADE: Final = "_forward_unimplemented"
"""The name of the `forward` of containers, such as ModuleList, which nobody calls."""

LETTERS: Final = 200
"""So long is a name in a mark at most."""

_NO_CALLERS: Final = ("torch.", "nsysflow.runtime.")
"""Modules between a call and the line of the program that makes it."""


def unwrapped(module: Any) -> Any:
    return getattr(module, "_orig_mod", module)  # what torch.compile was given


def class_of(module: Any) -> str:
    return str(type(unwrapped(module)).__name__)


def place_of(kind: Any) -> str:
    """`model.py:12-30`, the lines of its `forward`; empty for torch's own and without lines."""
    code = getattr(kind.forward, "__code__", None)
    if code is None or kind.forward.__module__.startswith("torch.") or code.co_name == UNMADE:
        return ""
    lines = [line for _, line in findlinestarts(code) if line is not None]
    file = Path(code.co_filename).name
    return f"{file}:{code.co_firstlineno}-{max(lines, default=code.co_firstlineno)}"[:LETTERS]


def calling_frames() -> Iterator[FrameType]:
    """The frames of the program that run, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not f"{frame.f_globals.get('__name__', '')}.".startswith(_NO_CALLERS):
            yield frame
        frame = frame.f_back


def calling_lines() -> Iterator[str]:
    """Their lines, as `train.py:12`."""
    return map(line_of, calling_frames())


def line_of(frame: FrameType) -> str:
    """Where a frame is, as `train.py:12`."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"[:LETTERS]


def calling_line() -> str:
    """The line that calls a module; empty where only torch does."""
    return next(calling_lines(), "")


MOST_INPUTS: Final = 64
"""We read at most so many arguments of a call, …"""

DEEPEST: Final = 3
"""… and lists and dicts in each other only so deep."""

_CONTAINERS: Final = (dict, list, set)
_VALUES: Final = (bool, int, float, str, type(None))

Key = tuple[Any, ...]


class CallInput:
    """The arguments of a call. It keeps no tensor alive.

    Attributes:
        key: equal for two calls only if they have the same arguments.
        tensors: weak references to the tensors.
        have_versions: whether each tensor has a version; tensors of inference mode have none.
    """

    def __init__(self, torch: Any, given: Any) -> None:
        """Read the arguments' addresses and values.

        Raises:
            TypeError: there are no tensors, too many arguments, or others than plain tensors,
                numbers and texts.
        """
        self._kinds = torch.Tensor, torch.nn.Parameter
        self._strided = torch.strided
        self._is_lazy: Callable[[Any], bool] | None = getattr(torch._C, "_is_cow_tensor", None)
        self._owners: list[tuple[weakref.ref[Any], int, int | None]] = []
        self._count = 0
        self.tensors: list[weakref.ref[Any]] = []
        self.have_versions = True
        self.key: Key = tuple(self._of(given, DEEPEST))
        if not self._owners:
            raise TypeError

    def _of(self, value: Any, depth: int) -> Iterator[Any]:
        self._count += 1
        kind = type(value)
        if self._count > MOST_INPUTS:
            raise TypeError
        if kind in self._kinds:
            yield self._memory_of(value)
        elif kind in _VALUES:
            yield kind, value
        elif kind in (tuple, list, dict) and depth:
            yield kind, len(value)
            for one in value:
                yield from self._of(one, depth - 1)
                if kind is dict:
                    yield from self._of(value[one], depth - 1)
        else:
            raise TypeError(kind)

    def _memory_of(self, tensor: Any) -> Key:
        # asking for the address of a lazy copy would copy it
        if tensor.layout is not self._strided or (self._is_lazy and self._is_lazy(tensor)):
            raise TypeError
        at, version = tensor.data_ptr(), version_of(tensor)
        if not at:
            raise TypeError
        self.tensors.append(weakref.ref(tensor))
        self.have_versions &= version is not None
        owner = tensor if tensor._base is None else tensor._base
        self._owners.append((weakref.ref(owner), owner.data_ptr(), version))
        shape = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
        return (at, version, *shape, tensor.requires_grad)

    def is_unchanged(self) -> bool:
        """Whether all tensors are still there, and torch has not written to them."""
        for ref, at, version in self._owners:
            owner = ref()
            if owner is None:
                return False
            getattr(owner, "_fix_weakref", nothing)()  # where only C++ has kept it
            if owner.data_ptr() != at or version_of(owner) != version:
                return False
            if not owner.untyped_storage().resizable():  # memory of another library
                return False
        return True


def version_of(tensor: Any) -> int | None:
    """How often torch wrote to a tensor; None in inference mode, which does not count."""
    return None if tensor.is_inference() else tensor._version


def weights_of(module: Any) -> int:
    """The number of a module's weights, those of its submodules among them."""
    return sum(one.numel() for one in module.parameters())


def state_of(module: Any) -> Key:
    """A module's attributes, parameters and buffers, as ids and versions: equal for two calls if
    nothing was assigned, added or written."""
    found: list[int | None] = []
    for each in module.modules():
        held = vars(each)
        for value in held.values():
            found.append(id(value))
            if isinstance(value, _CONTAINERS):
                found.append(len(value))
            elif hasattr(value, "data_ptr"):
                found.append(version_of(value))
        for tensors in (held["_parameters"], held["_buffers"]):
            for tensor in tensors.values():
                if tensor is not None:
                    found += id(tensor), tensor.data_ptr(), version_of(tensor)
    return tuple(found)


def values_in(values: Any, depth: int) -> Iterator[Any]:
    """The values in lists and dicts, also in nested ones."""
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        yield values
        return
    if depth >= 0:
        for one in values:
            yield from values_in(one, depth - 1)


def copied_to_host(torch: Any, tensor: Any) -> tuple[Any, Any]:
    """A copy of a tensor in the host's memory, and an event that completes once the copy is there;
    None instead of the event for a tensor of the CPU. Nobody waits for the copy."""
    if not tensor.is_cuda:
        return tensor.clone(), None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    with torch.cuda.device(tensor.device):
        copy.copy_(tensor, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
    return copy, arrived


class Zeros(NamedTuple):
    """How many numbers of a tensor are zeros, on the way from the GPU.

    Attributes:
        of: how many numbers there are.
        others: how many of them are no zeros, in the host's memory.
        arrived: completes once that is there; None if it was on the CPU.
    """

    of: int
    others: Any
    arrived: Any

    @property
    def share(self) -> float:
        """The share of zeros."""
        return 1 - float(self.others.item()) / self.of

    def are_here(self) -> bool:
        """Whether they can be read."""
        return self.arrived is None or bool(self.arrived.query())


def zeros_in(torch: Any, tensor: Any) -> Zeros:
    """The zeros in a tensor; of an expanded one, those that are in memory."""
    with torch.no_grad():
        one = tensor.detach()
        for at, stride in enumerate(one.stride()):
            if not stride:
                one = one.narrow(at, 0, 1)
        if one.is_floating_point():
            kind = torch.promote_types(one.dtype, torch.float32)
            others = torch.linalg.vector_norm(one, 0, dtype=kind)  # as one kernel
        else:
            others = torch.count_nonzero(one)
        return Zeros(one.numel(), *copied_to_host(torch, others))


def modes_of(torch: Any, module: Any) -> Key:
    """Whether gradients are on, whether the module trains, and the settings of autocast."""
    if hasattr(torch, "get_autocast_dtype"):
        casts = [torch.is_autocast_enabled(on) for on in ("cuda", "cpu")]
        casts += [torch.get_autocast_dtype(on) for on in ("cuda", "cpu")]
    else:  # before torch 2.4
        casts = [torch.is_autocast_enabled(), torch.is_autocast_cpu_enabled()]
        casts += [torch.get_autocast_gpu_dtype(), torch.get_autocast_cpu_dtype()]
    return (torch.is_grad_enabled(), module.training, *casts)


def drawn_numbers(torch: Any) -> Key:
    """The states of the generators of random numbers: they change when a number is drawn."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return tuple(tuple(one.get_state().tolist()) for one in generators)
