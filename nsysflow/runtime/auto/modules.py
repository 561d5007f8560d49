"""Calls of modules, functions of torch and frameworks that are phases by themselves, and times of
DataLoaders.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from nsysflow.runtime.auto.gradients import GRADIENTS
from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.inject.nsysflow_hook import when_imported
from nsysflow.runtime.loaders import (
    LOADERS,
    Requests,
    Results,
    WorkerTimes,
    code_file,
    worker_file,
)
from nsysflow.runtime.padding import PADDING
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.products import PRODUCTS
from nsysflow.runtime.protocol import LOOK, RUN_FOLDER
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import captures_graph
from nsysflow.runtime.repeats import REPEATS
from nsysflow.runtime.steps import AT_STEP
from nsysflow.runtime.unchanged import UNCHANGED
from nsysflow.runtime.worker_code import WorkerSampler

FORWARD: Final = "forward"
EVAL: Final = "eval"

_NO_MODEL: Final = re.compile(
    r"(Loss|Criterion|Metrics?|Transforms?|Augment(er|ations?)?)(?![a-z])"  # no Transformer
)
"""Words in the name of a class: a module that is no model, even where it has parameters."""

_NO_MODELS: Final = ("torch.nn.modules.loss", "torchmetrics.", "torchvision.transforms.")
"""Where modules that are no models are defined."""

_GRAPHS: Final = "torch.fx."
"""Where torch.compile's graphs are defined, which are given the parameters of their model."""


def annotate_modules(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around calls of modules that are in no other call of a module."""
    call = torch.nn.Module.__call__
    is_compiling, here, apart, steps = ranges.is_compiling, ranges.here, ranges.apart, ranges.steps
    names = Names(ranges, torch.is_grad_enabled)

    def looked_at(self: Any, *args: Any, **kwargs: Any) -> Any:
        left = apart(_look_at, self, args, kwargs)
        try:
            result = call(self, *args, **kwargs)
            if PRODUCTS.looking:
                apart(PRODUCTS.returned_within, result)
            return result
        finally:
            apart(left)

    ranges.hide(looked_at)

    # every call of every module comes through here: what it does first has to be quick
    @wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return call(self, *args, **kwargs)
        if here.busy or (THIS_PROCESS.recorded and steps.trains):
            if GRADIENTS.watched or UNCHANGED.looking or REPEATS.looking or PRODUCTS.looking:
                return looked_at(self, *args, **kwargs)
            return call(self, *args, **kwargs)
        here.busy = True
        of_step, close = apart(names.open, self, args, kwargs)
        try:
            result = call(self, *args, **kwargs)
            if PRODUCTS.looking:
                apart(PRODUCTS.returned, result)
        finally:
            apart(close)
            here.busy = False
        if of_step:
            apart(steps.after_call, self)
        return result

    torch.nn.Module.__call__ = ranges.hide(__call__)


def _look_at(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], object]:
    """Look at a call in another one; what is returned is called after it."""
    if GRADIENTS.watched:
        GRADIENTS.safely(GRADIENTS.called, module, args, kwargs)
    return _entered(module, args, kwargs)


_LOOKS: Final = (REPEATS, UNCHANGED, PADDING, PRODUCTS)
"""They watch module calls in a few early steps; what watches operators as the last one."""


def _entered(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = ""
) -> Callable[[], object]:
    """Pass a call to the looks that run; the caller calls what this returns once it has ended."""
    left = [look.enter(module, args, kwargs, name) for look in _LOOKS if look.looking]
    return partial(_call_all, left) if left else nothing


def _call_all(functions: list[Callable[[], object]]) -> None:
    for function in reversed(functions):
        function()


def notice_evaluation(torch: ModuleType, ranges: Ranges) -> None:
    """Note when a model is switched to evaluation, so that its batches do not count as steps."""
    switch, is_compiling = torch.nn.Module.train, ranges.is_compiling

    @wraps(switch)
    def train(self: Any, mode: bool = True) -> Any:
        if not (mode or is_compiling()):
            THIS_PROCESS.evaluates = True
        return switch(self, mode)

    torch.nn.Module.train = ranges.hide(train)


class Names:
    """The range of each module."""

    def __init__(self, ranges: Ranges, is_grad_enabled: Callable[[], bool]) -> None:
        self._ranges, self._is_grad_enabled = ranges, is_grad_enabled
        self._own: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def open(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Open the range of a call: whether it is one of a model that is not judged, and what
        closes the range."""
        ranges = self._ranges
        own = self._own.get(module)
        if own is None:
            own = self._own[module] = own_name(module)
        if own:
            return False, self._opened(module, own, args, kwargs)
        ranges.steps.before_call()
        if ranges.here.tokens is not None:
            _next_token(ranges, ranges.here.tokens, _batch(args, kwargs))
        ranges.steps.training = module.training
        judged = not module.training and self._learns()
        name = EVAL if judged else FORWARD
        return not judged, self._opened(module, name, args, kwargs)

    def _opened(
        self, module: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], object]:
        if GRADIENTS.noting or GRADIENTS.watched:
            GRADIENTS.safely(GRADIENTS.outermost, module, name, args, kwargs)
        if not any(look.looking for look in _LOOKS):
            return self._ranges.open(name)
        left, close = _entered(module, args, kwargs, name), self._ranges.open(name)

        def end() -> None:
            close()
            left()

        return end

    def _learns(self) -> bool:
        """Whether the program has learned, or has an optimizer and now runs without gradients: it
        evaluates before its first step."""
        steps = self._ranges.steps
        return steps.learns or (steps.trains and not self._is_grad_enabled())


def _next_token(ranges: Ranges, tokens: list[Any], batch: tuple[int, int] | None) -> None:
    """Close the range of the token before, and open one that names the batch (spec §23.8)."""
    kind = "decode" if tokens else "prefill"
    while tokens:
        tokens.pop()()
    numbers = f"[{kind} bs={batch[0]} tok={batch[0] * batch[1]}]" if batch else ""
    tokens.append(ranges.open(f"token{numbers}"))


_INPUTS: Final = ("input_ids", "inputs_embeds")


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int] | None:
    """How many sequences a call of a language model has, and how many tokens of each; None where
    its input does not say."""
    for given in (*map(kwargs.get, _INPUTS), *args[:1]):
        shape = getattr(given, "shape", None)
        if shape is not None:
            return (int(shape[0]), int(shape[1])) if len(shape) > 1 else None
    return None


def own_name(module: Any) -> str:
    """The class of a loss, a metric, a transform or anything else that has nothing to learn; empty
    for a model."""
    module = getattr(module, "_orig_mod", module)  # what torch.compile was given
    kind = type(module)
    defined_in = f"{kind.__module__}."
    if _NO_MODEL.search(kind.__name__) or defined_in.startswith(_NO_MODELS):
        return str(kind.__name__)
    if any(defined_in_torch_loss(base) for base in kind.__mro__):
        return str(kind.__name__)
    is_model = defined_in.startswith(_GRAPHS) or _has_state(module)
    return "" if is_model else str(kind.__name__)


def _has_state(module: Any) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def defined_in_torch_loss(kind: type) -> bool:
    """Whether a class is one of torch's losses."""
    return kind.__module__ == "torch.nn.modules.loss"


def notice_replays(torch: ModuleType, ranges: Ranges) -> None:
    """Count launches of CUDA graphs, which write to memory that tensors seem to have unchanged."""
    graph = torch.cuda.CUDAGraph
    replay = graph.replay

    @wraps(replay)
    def counted(self: Any) -> Any:
        REPEATS.replays += 1
        return replay(self)

    graph.replay = ranges.hide(counted)


def look_at_steps(torch: ModuleType, ranges: Ranges) -> None:
    """Start the looks at early steps. What is recorded says which these are."""
    for look in _LOOKS:
        look.prepare(torch)
        AT_STEP.append(look.at_step)

    def note_look() -> None:
        watched = UNCHANGED.looking or REPEATS.looking or PRODUCTS.looking
        if watched and not captures_graph():
            ranges.open(LOOK)()

    AT_STEP.append(note_look)


_FSDP: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"


def annotate_functions(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each of them."""
    batches = torch.utils.data.dataloader._BaseDataLoaderIter
    ranges.put_around(batches, "__next__", "data", busy=True)

    for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            ranges.put_around(owner, name, "clip_grad")
    when_imported(
        _FSDP,
        lambda fsdp: ranges.put_around(
            fsdp.FullyShardedDataParallel, "clip_grad_norm_", "clip_grad"
        ),
    )

    for owner in (torch, torch.serialization):
        ranges.put_around(owner, "save", "save")


_NOT_RUNNING: Final = -1


def annotate_engine(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each run that is in no other: `Tensor.backward` and `torch.autograd.grad`
    all come to one function."""
    run = torch.autograd._engine_run_backward
    in_range = ranges.around("backward", run)
    is_compiling, apart, steps = ranges.is_compiling, ranges.apart, ranges.steps
    running = torch._C._current_graph_task_id

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return run(*args, **kwargs)
        if running() != _NOT_RUNNING:
            result = run(*args, **kwargs)
            apart(GRADIENTS.safely, GRADIENTS.after_backward)
            return result
        result = in_range(*args, **kwargs)
        if REPEATS.looking and kwargs.get("accumulate_grad"):
            REPEATS.passes += 1
        apart(steps.after_backward)
        apart(GRADIENTS.safely, GRADIENTS.after_backward)
        return result

    torch.autograd._engine_run_backward = ranges.hide(_engine_run_backward)


_FUNCTIONS: Final = (
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "step", "optimizer"),
    ("accelerate.data_loader", None, "send_to_device", "data"),
    ("lightning.pytorch.strategies.strategy", "Strategy", "batch_to_device", "data"),
    ("pytorch_lightning.strategies.strategy", "Strategy", "batch_to_device", "data"),
)
"""Module, class (None: a function of the module), function and its range. DeepSpeed's own step does
more than the torch optimizer in it: it reduces gradients and casts parameters."""


def annotate_frameworks(_torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each of them, once the program imports it."""
    for module, owner, function, name in _FUNCTIONS:
        when_imported(module, partial(_put_around, ranges, owner, function, name))


def _put_around(
    ranges: Ranges, owner: str | None, function: str, name: str, module: ModuleType
) -> None:
    place = getattr(module, owner, None) if owner else module
    if hasattr(place, function):  # versions differ
        ranges.put_around(place, function, name)


def annotate_generation(_torch: ModuleType, ranges: Ranges) -> None:
    """Put the ranges there once the program imports transformers."""
    when_imported("transformers.generation.utils", lambda utils: _annotate(utils, ranges))


def _annotate(utils: ModuleType, ranges: Ranges) -> None:
    generate, here = utils.GenerationMixin.generate, ranges.here

    @wraps(generate)
    def with_tokens(*args: Any, **kwargs: Any) -> Any:
        around, here.tokens = here.tokens, []
        try:
            return generate(*args, **kwargs)
        finally:
            for close in here.tokens:
                close()
            here.tokens = around

    utils.GenerationMixin.generate = ranges.around("generate", with_tokens)


def annotate_loaders(torch: ModuleType, ranges: Ranges) -> None:
    """Time what DataLoaders do: in this process, and in the workers that it starts."""
    _time_worker(torch.utils.data._utils.worker, ranges)
    _time_passes(torch.utils.data.dataloader._BaseDataLoaderIter, ranges)


_RUN: Final = "_nsysflow_run"
"""The attribute of torch's iterator that holds its `LoaderRun`."""


def _time_passes(iterator: Any, ranges: Ranges) -> None:
    """Time each wait of the loop for a batch."""
    init, following = iterator.__init__, iterator.__next__
    is_compiling, waited = ranges.is_compiling, LOADERS.waited

    @wraps(init)
    def __init__(self: Any, loader: Any) -> None:
        init(self, loader)
        run = LOADERS.opened(loader)
        setattr(self, _RUN, run)
        weakref.finalize(self, LOADERS.closed, run)

    @wraps(following)
    def __next__(self: Any) -> Any:
        if is_compiling():
            return following(self)
        begun_ns = time.monotonic_ns()
        batch = following(self)
        run = vars(self).get(_RUN)
        if run is not None:
            if run.files is None:
                run.know([worker.pid for worker in getattr(self, "_workers", ())])
            waited(run, begun_ns, time.monotonic_ns())
        return batch

    iterator.__init__ = ranges.hide(__init__)
    iterator.__next__ = ranges.hide(__next__)


def _time_worker(worker: Any, ranges: Ranges) -> None:
    """Time the batches of a worker, in its process. A spawned one finds this by its name, as it
    finds torch's own function."""
    loop = worker._worker_loop

    @wraps(loop)
    def _worker_loop(kind: Any, dataset: Any, requests: Any, results: Any, *args: Any) -> Any:
        folder = os.environ.get(RUN_FOLDER)
        with suppress(OSError):  # the folder is gone or full
            if folder:
                times = WorkerTimes(worker_file(folder, os.getpid()))
                requests, results = Requests(requests, times), Results(results, times)
                WorkerSampler(code_file(folder, os.getpid()), times.is_busy)
        return loop(kind, dataset, requests, results, *args)

    worker._worker_loop = ranges.hide(_worker_loop)
