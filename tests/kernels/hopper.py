"""Compile Triton kernels for an H200 where there is none.

The interpreter takes more than the compiler does, and says nothing of registers.
"""

import atexit
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SHARED_BYTES_MAX: Final = 227 * 1024
"""Of an sm_90; https://docs.nvidia.com/cuda/hopper-tuning-guide."""

COMPILE: Final = """
import importlib, json, sys
from pathlib import Path
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for line in sys.stdin:
    asked, cubin = json.loads(line)
    module = importlib.import_module("nsysflow.kernels." + asked["module"])
    kernel = getattr(module, asked["name"])
    types = {each: asked["types"].get(each, "constexpr") for each in kernel.arg_names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, each in enumerate(kernel.arg_names)
        if types[each].startswith("*") or types[each].endswith(":16")
    }
    types = {each: type_.removesuffix(":16") for each, type_ in types.items()}
    constants = {
        each: getattr(tl, value) if isinstance(value, str) else value
        for each, value in asked["constants"].items()
    }
    source = ASTSource(kernel, types, constants, aligned)
    options = {"num_warps": asked["warps"], **asked["options"]}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    Path(cubin).write_bytes(compiled.asm["cubin"])
    print(json.dumps([compiled.asm["ptx"], compiled.metadata.shared]), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One specialisation of a `@triton.jit` function, its pointers aligned as torch's are.

    Attributes:
        module: of nsysflow.kernels.
        name: its name there.
        types: of the arguments that are not constants, as Triton spells them; `i32:16` for a
            multiple of 16.
        constants: the others; a Triton type by its name.
        warps: of a program.
        options: of the launch, like `launch_pdl`.
    """

    module: str
    name: str
    types: Mapping[str, str]
    constants: Mapping[str, int | str | None]
    warps: int
    options: Mapping[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What became of a kernel.

    Attributes:
        ptx: its assembly, before ptxas.
        shared_bytes: of a program; an SM has `SHARED_BYTES_MAX` for one.
        registers: of a thread.
        local_bytes: of a thread's stack and local memory, which are no registers.
    """

    ptx: str
    shared_bytes: int
    registers: int
    local_bytes: int

    @property
    def loads(self) -> Counter[str]:
        """Global loads by width, e.g. `v4.b32`."""
        return Counter(re.findall(r"ld\.global\.(v\d\.b\d+|b\d+)", self.ptx))


def compile_for_hopper(kernel: Kernel) -> Compiled:
    """Compile for sm_90, in another process: this one may be bound to the interpreter.

    Raises:
        CalledProcessError: it does not compile; the reason is on stderr.
    """
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        ptx, shared_bytes = _compile(kernel, cubin)
        argv = [_tool("cuobjdump"), "-res-usage", str(cubin)]
        usage = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return Compiled(
        ptx=ptx,
        shared_bytes=shared_bytes,
        registers=found["REG"],
        local_bytes=found["STACK"] + found["LOCAL"],
    )


def _compile(kernel: Kernel, cubin: Path) -> tuple[str, int]:
    """The compiler's assembly, and bytes of shared memory; the binary goes to `cubin`."""
    compiler = _compiler()
    assert compiler.stdin is not None
    assert compiler.stdout is not None
    print(json.dumps([asdict(kernel), str(cubin)]), file=compiler.stdin, flush=True)
    answer = compiler.stdout.readline()
    if not answer:
        _compiler.cache_clear()
        raise subprocess.CalledProcessError(compiler.wait(), compiler.args)
    ptx, shared_bytes = json.loads(answer)
    return ptx, shared_bytes


@cache
def _compiler() -> "subprocess.Popen[str]":
    """The process that compiles; one for all kernels, as torch and Triton take 1.4 s to import."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    argv = [sys.executable, "-c", COMPILE]
    compiler = subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(compiler.communicate)
    return compiler


def _tool(name: str) -> str:
    """One of the CUDA tools inside Triton's wheel."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)
