"""Triton's interpreter: kernels are tested in it if there is no GPU."""

import os
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import torch


def interpret_without_gpu() -> None:
    """Run Triton kernels in the interpreter if there is no GPU. Call before importing Triton."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        _patch_language_once_per_launch()


def _patch_language_once_per_launch() -> None:
    """Make calls of device functions cheaper in the interpreter.

    Each launch replaces functions of triton.language by interpreted ones. Each call of a
    `@triton.jit` function inside the kernel tries to replace them again, which changes nothing but
    takes over a millisecond: a sixth of the CPU time of tests/kernels (Triton 3.9, 2026-11-22).
    """
    if find_spec("triton") is None:
        return
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):
        return  # another version of Triton: slower tests
    patch = interpreter._patch_lang

    def patch_once(function: FunctionType) -> Any:
        names = function.__globals__.values()
        languages = [each for each in names if each is tl or each is tl.core]
        if languages and not any(tl.core.is_builtin(each.load) for each in languages):
            return interpreter._LangPatchScope()  # already replaced, nothing to restore
        return patch(function)

    interpreter._patch_lang = patch_once
