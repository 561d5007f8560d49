"""Steps of optimizers: `optimizer`, and where the program's steps begin and end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from nsysflow.runtime.auto.gradients import GRADIENTS
from nsysflow.runtime.auto.ranges import Function, Ranges
from nsysflow.runtime.process import THIS_PROCESS


def annotate_optimizers(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each optimizer's step, and one around zeroing gradients.

    torch replaces `step` of a class when the first optimizer of that class is made, by what
    `profile_hook_step` makes of it; there we add ours. So each optimizer has a step of its class,
    which learning rate schedulers may replace as they do without us.
    """
    optimizer = torch.optim.Optimizer
    hooked = optimizer.profile_hook_step

    @wraps(hooked)
    def profile_hook_step(step: Function) -> Function:
        ranges.steps.trains = True
        return _stepping(ranges, hooked(step))

    optimizer.profile_hook_step = staticmethod(profile_hook_step)
    optimizer.__init__ = _made(optimizer.__init__)
    GRADIENTS.is_grad_enabled = torch.is_grad_enabled
    for owner in (optimizer, torch.nn.Module):
        owner.zero_grad = _clearing(ranges, owner.zero_grad)
        ranges.put_around(owner, "zero_grad", "zero_grad")
    scaler = torch.amp.grad_scaler.GradScaler
    for name in ("unscale_", "step", "update"):
        ranges.put_around(scaler, name, "optimizer", busy=True)


def count_optimizer_steps(
    torch: ModuleType, ranges: Ranges, *, when_made: Callable[[], None]
) -> None:
    """Count steps of optimizers, without a range.

    Args:
        torch: the module.
        ranges: whose steps they are.
        when_made: called when the first optimizer of a class is made.
    """
    optimizer = torch.optim.Optimizer
    hooked = optimizer.profile_hook_step
    is_compiling, apart, steps = ranges.is_compiling, ranges.apart, ranges.steps

    def counting(step: Function) -> Function:
        @wraps(step)
        def within(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = step(self, *args, **kwargs)
            if not is_compiling():
                apart(steps.after_optimizer, self)
            return result

        return ranges.hide(within)

    @wraps(hooked)
    def profile_hook_step(step: Function) -> Function:
        steps.trains = True
        when_made()
        return counting(hooked(step))

    optimizer.profile_hook_step = staticmethod(profile_hook_step)


def _made(make: Function) -> Function:
    """`make`, which also says what was made."""

    @wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        GRADIENTS.safely(GRADIENTS.made, self)

    return __init__


def _clearing(ranges: Ranges, clear: Function) -> Function:
    """`clear`, noted in the few steps in which gradients are looked at."""
    is_compiling, apart = ranges.is_compiling, ranges.apart

    @wraps(clear)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not GRADIENTS.watched:
            return clear(self, *args, **kwargs)
        apart(GRADIENTS.safely, GRADIENTS.zeroing, self)
        result = clear(self, *args, **kwargs)
        apart(GRADIENTS.safely, GRADIENTS.refresh)
        return result

    return ranges.hide(zero_grad)


def _stepping(ranges: Ranges, step: Function) -> Function:
    """`step` in a range that leaves out the closure, and with the border of a step behind it."""
    is_compiling, apart, steps = ranges.is_compiling, ranges.apart, ranges.steps

    @wraps(step)
    def within(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return step(self, *args, **kwargs)
        if THIS_PROCESS.recorded:
            result = step(self, *args, **kwargs)
            apart(steps.after_optimizer, self)
            return result
        part = apart(_Part, ranges)
        if args and callable(args[0]):
            args = (apart(part.left_out, args[0]), *args[1:])
        if callable(kwargs.get("closure")):
            kwargs["closure"] = apart(part.left_out, kwargs["closure"])
        apart(GRADIENTS.safely, GRADIENTS.before_step, self)
        apart(part.open)
        try:
            result = step(self, *args, **kwargs)
        finally:
            apart(part.close)
        apart(GRADIENTS.safely, GRADIENTS.refresh)
        apart(steps.after_optimizer, self)
        return result

    return ranges.hide(within)


class _Part:
    """The range of one optimizer's step, from the step to its closure, and from there on."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._was_busy = ranges.here.busy
        self._close: Callable[[], object]

    def open(self) -> None:
        self._ranges.here.busy = True
        self._close = self._ranges.open("optimizer")

    def close(self) -> None:
        self._close()
        self._ranges.here.busy = self._was_busy

    def left_out(self, closure: Function) -> Function:
        """`closure`, outside the range."""
        apart = self._ranges.apart

        @wraps(closure)
        def outside(*args: Any, **kwargs: Any) -> Any:
            apart(self.close)
            try:
                return closure(*args, **kwargs)
            finally:
                apart(self.open)

        return self._ranges.hide(outside)
