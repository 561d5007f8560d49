"""Constants of the CUDA sources are right, and nvcc compiles them to what their docs claim."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from nsysflow.kernels import nvrtc
from nsysflow.kernels.advantage import cuda_constants

FACTORS = {"GAMMA": 0.99, "GAMMA_LAMBDA": 0.99 * 0.95, "RHO_CLIP": 1.0, "C_CLIP": 1.0}


def test_constants_become_c_literals() -> None:
    constants: dict[str, str | int | float] = {"T": "bf16", "N": 8, "X": 0.1, "TINY": 1e-20}
    assert nvrtc.flags(constants) == ("-DT=bf16", "-DN=8", "-DX=0.1f", "-DTINY=1e-20f")
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="X must be finite"):
            nvrtc.flags({"X": value})


def test_nvrtc_is_found_in_the_wheels(tmp_path: Path) -> None:
    nvidia = tmp_path / "nvidia"
    for place in (
        "cuda_nvrtc/lib/libnvrtc.so.12",
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libnvrtc.so",
    ):
        (nvidia / place).parent.mkdir(parents=True, exist_ok=True)
        (nvidia / place).touch()
    assert nvrtc.wheel_nvrtc(tmp_path, "13.0") == nvidia / "cu13/lib/libnvrtc.so.13"
    assert nvrtc.wheel_nvrtc(tmp_path, "12.8") == nvidia / "cuda_nvrtc/lib/libnvrtc.so.12"
    assert nvrtc.wheel_nvrtc(tmp_path, "11.8") is None


@pytest.mark.parametrize(
    ("steps", "dtype", "shifted", "cut"),
    [
        (64, torch.bfloat16, 0, (8, 8, 8)),
        (64, torch.float32, 0, (4, 4, 16)),
        (60, torch.bfloat16, 0, (8, 4, 8)),
        (33, torch.bfloat16, 0, (8, 1, 8)),
        (4096, torch.bfloat16, 0, (8, 8, 32)),
        (64, torch.bfloat16, 1, (8, 1, 8)),
    ],
)
def test_rows_are_divided_for_the_widest_possible_loads(
    steps: int, dtype: torch.dtype, shifted: int, cut: tuple[int, int, int]
) -> None:
    rows = torch.zeros(2 * steps + 1, dtype=dtype)[shifted:][: 2 * steps].view(2, steps)
    constants = cuda_constants((rows,) * 4, torch.zeros(2, steps))
    assert (constants["CHUNK"], constants["WIDTH"], constants["LANES"]) == cut


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
