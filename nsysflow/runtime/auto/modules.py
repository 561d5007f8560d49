"""Calls of modules: `forward`, `eval`, or the name of a loss, a metric or a transform."""

from __future__ import annotations

import re
from functools import wraps
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from nsysflow.runtime.auto.ranges import Ranges

FORWARD: Final = "forward"
EVAL: Final = "eval"

_NO_MODEL: Final = re.compile(r"Loss|Criterion|Metric|Transform|Augment")
"""In the name of a class: a module that is no model, even where it has parameters."""

_NO_MODELS: Final = ("torch.nn.modules.loss", "torchmetrics.", "torchvision.transforms.")
"""Where modules that are no models are defined."""

_GRAPHS: Final = "torch.fx."
"""Where torch.compile's graphs are defined, which are given the parameters of their model."""


def annotate(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around calls of modules that are in no other call of a module."""
    call = torch.nn.Module.__call__
    is_compiling, here, apart, steps = ranges.is_compiling, ranges.here, ranges.apart, ranges.steps
    names = Names(ranges)

    # every call of every module comes through here: what it does first has to be quick
    @wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or here.busy:
            return call(self, *args, **kwargs)
        here.busy = True
        model, close = apart(names.open, self)
        try:
            result = call(self, *args, **kwargs)
        finally:
            apart(close)
            here.busy = False
        if model:
            apart(steps.after_call, self)
        return result

    torch.nn.Module.__call__ = ranges.hide(__call__)


class Names:
    """The range of each module."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._own: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def open(self, module: Any) -> tuple[bool, Any]:
        """Open the range of a call: whether it is one of a model, and what closes the range."""
        ranges = self._ranges
        own = self._own.get(module)
        if own is None:
            own = self._own[module] = own_name(module)
        if own:
            return False, ranges.open(own)
        ranges.steps.before_call()
        if ranges.here.tokens is not None:
            _next_token(ranges, ranges.here.tokens)
        judged = ranges.steps.stepped and not module.training
        return True, ranges.open(EVAL if judged else FORWARD)


def _next_token(ranges: Ranges, tokens: list[Any]) -> None:
    while tokens:
        tokens.pop()()
    tokens.append(ranges.open("token"))


def own_name(module: Any) -> str:
    """The class of a loss, a metric, a transform or anything else that has nothing to learn; empty
    for a model."""
    module = getattr(module, "_orig_mod", module)  # what torch.compile was given
    kind = type(module)
    defined_in = f"{kind.__module__}."
    if _NO_MODEL.search(kind.__name__) or defined_in.startswith(_NO_MODELS):
        return str(kind.__name__)
    if any(defined_in_torch_loss(each) for each in kind.__mro__):
        return str(kind.__name__)
    is_model = defined_in.startswith(_GRAPHS) or _has_state(module)
    return "" if is_model else str(kind.__name__)


def _has_state(module: Any) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def defined_in_torch_loss(kind: type) -> bool:
    """Whether a class is one of torch's losses."""
    return kind.__module__ == "torch.nn.modules.loss"
