"""Constants of the CUDA sources are right, and the kernels compile to what their docs claim."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from nsysflow.kernels import nvrtc
from nsysflow.kernels.advantage import cuda_constants
from tests.kernels.hopper import Kernel, compile_for_hopper, pointers

FACTORS = {"GAMMA": 0.99, "GAMMA_LAMBDA": 0.99 * 0.95, "RHO_CLIP": 1.0, "C_CLIP": 1.0}


def test_constants_become_c_literals() -> None:
    constants: dict[str, str | int | float] = {"T": "bf16", "N": 8, "X": 0.1, "TINY": 1e-20}
    assert nvrtc.flags(constants) == ("-DT=bf16", "-DN=8", "-DX=0.1f", "-DTINY=1e-20f")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_float_without_a_c_literal_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="X must be finite"):
        nvrtc.flags({"X": value})


def test_nvrtc_is_found_in_the_wheels(tmp_path: Path) -> None:
    for place in (
        "cuda_nvrtc/lib/libnvrtc.so.12",
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libnvrtc.so",
    ):
        (tmp_path / "nvidia" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / place).touch()
    assert nvrtc.wheel_nvrtc(tmp_path, "13.0") == tmp_path / "nvidia/cu13/lib/libnvrtc.so.13"
    assert nvrtc.wheel_nvrtc(tmp_path, "12.8") == tmp_path / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    assert nvrtc.wheel_nvrtc(tmp_path, "11.8") is None


def test_rows_are_divided_for_the_widest_possible_loads() -> None:
    def cut(steps: int, dtype: torch.dtype, *, shifted: bool = False) -> tuple[object, ...]:
        flat = torch.zeros(2 * steps + 1, dtype=dtype)
        rows = (flat[1:] if shifted else flat[:-1]).view(2, steps)
        constants = cuda_constants((rows,) * 4, torch.zeros(2, steps))
        return constants["CHUNK"], constants["WIDTH"], constants["LANES"]

    assert cut(64, torch.bfloat16) == (8, 8, 8)
    assert cut(64, torch.float32) == (4, 4, 16)
    assert cut(60, torch.bfloat16) == (8, 4, 8)
    assert cut(33, torch.bfloat16) == (8, 1, 8)
    assert cut(4096, torch.bfloat16) == (8, 8, 32)
    assert cut(64, torch.bfloat16, shifted=True) == (8, 1, 8)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_advantage_on_hopper_uses_no_local_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    rows = torch.zeros(2, 64, dtype=dtype)
    constants = cuda_constants((rows,) * 4, torch.zeros(2, 64)) | FACTORS
    source = str(nvrtc.SOURCES / "advantage.cu")
    hopper = ("-cubin", "-arch=sm_90", "-Xptxas=-v")
    output = subprocess.run(
        ["nvcc", *hopper, *nvrtc.flags(constants), "-o", str(tmp_path / "cubin"), source],
        capture_output=True,
        check=True,
        text=True,
    ).stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in output
    registers = re.search(r"Used (\d+) registers", output)
    assert registers is not None
    assert int(registers[1]) <= 64, "with more, an SM could not hold its 31 warps of float32 rows"


def advantage_in_triton(steps: int, *, rows: int, lanes: int, chunk: int) -> Kernel:
    floats = "bf16" if chunk == 8 else "fp32"
    types = pointers(**{floats: "values rewards done ratio"}) | pointers(fp32="out")
    types |= dict.fromkeys(("gamma", "gamma_lambda", "rho_clip", "c_clip"), "fp32")
    return Kernel(
        module="advantage",
        name="_advantage",
        types=types | {"rows": "i32"},
        constants={"STEPS": steps, "ROWS": rows, "LANES": lanes, "CHUNK": chunk},
        warps=4,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel",
    [
        advantage_in_triton(64, rows=16, lanes=8, chunk=8),
        advantage_in_triton(64, rows=8, lanes=16, chunk=4),
        advantage_in_triton(256, rows=4, lanes=32, chunk=4),
    ],
    ids=["bf16", "float32", "two rounds"],
)
def test_a_thread_of_triton_advantage_reads_each_input_in_one_load(kernel: Kernel) -> None:
    compiled = compile_for_hopper(kernel)
    assert compiled.loads == {"v4.b32": 4}
    assert compiled.local_bytes == 0
    assert compiled.registers <= 64
