"""Text from the transformers library: `generate`, with a `token` per call of the model."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.inject.nsysflow_hook import when_imported


def annotate(_torch: ModuleType, ranges: Ranges) -> None:
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
