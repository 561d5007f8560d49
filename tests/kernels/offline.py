"""Compile Triton kernels for an H200 where there is none.

The interpreter takes more than the compiler does, and says nothing of registers.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

COMPILE = """
import importlib, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

module, name, signature, constants, options = json.loads(sys.argv[1])
kernel = getattr(importlib.import_module(module), name)
types = {each: signature.get(each, "constexpr") for each in kernel.arg_names}
aligned = {
    (at,): [["tt.divisibility", 16]]
    for at, each in enumerate(kernel.arg_names) if types[each].startswith("*")
}
source = ASTSource(kernel, types, constants, aligned)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
open(sys.argv[2], "wb").write(compiled.asm["cubin"])
print(compiled.asm["ptx"])
"""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What became of a kernel."""

    ptx: str
    registers: int
    stack_bytes: int


def compile_for_hopper(
    module: str,
    kernel: str,
    signature: Mapping[str, str],
    constants: Mapping[str, int | None],
    options: Mapping[str, int | bool],
) -> Compiled:
    """A `@triton.jit` function compiled for sm_90, its pointers aligned as torch's are.

    Args:
        module: where it is, by its full name.
        kernel: its name there.
        signature: the types of those arguments that are not constants, as Triton spells them.
        constants: the others.
        options: of the launch, like `num_warps`.

    Raises:
        CalledProcessError: it does not compile; the reason is on stderr.
    """
    wanted = json.dumps([module, kernel, signature, constants, options])
    # a process of its own: this one may be bound to the interpreter
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        ptx = _output([sys.executable, "-c", COMPILE, wanted, str(cubin)], env)
        usage = _output([_tool("cuobjdump"), "-res-usage", str(cubin)], env)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found, usage
    return Compiled(ptx=ptx, registers=int(found[1]), stack_bytes=int(found[2]))


def _output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    return subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def _tool(name: str) -> str:
    """One of the CUDA tools inside Triton's wheel."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)
