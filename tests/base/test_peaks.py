"""The peaks of GPUs, and their FLOPs per cycle."""

import pytest

from nsysflow.base.peaks import MEMORY, NVLINK, PEAKS, PER_CYCLE, UNITS, peak_flops


@pytest.mark.parametrize("gpu", PEAKS)
def test_narrower_arithmetic_is_never_slower(gpu: str) -> None:
    rates = [rate for unit in UNITS if (rate := peak_flops(gpu, unit)) is not None]
    assert rates == sorted(rates)
    assert peak_flops(gpu, "bf16") == peak_flops(gpu, "fp16")


def test_gpus_are_named_as_drivers_name_them() -> None:
    assert {name.partition(" ")[0] for name in PEAKS} == {"NVIDIA", "AMD"}
    assert NVLINK.keys() <= PEAKS.keys() <= MEMORY.keys()
    assert peak_flops("AMD Instinct MI300X", "bf16") == 1.3074e15
    assert peak_flops("AMD Instinct MI355X", "tf32") is None
    assert peak_flops("a GPU", "bf16") is None


SMS = {
    "NVIDIA H200": 132,
    "NVIDIA H100 80GB HBM3": 132,
    "NVIDIA H100 PCIe": 114,
    "NVIDIA H100 NVL": 132,
    "NVIDIA A100-SXM4-80GB": 108,
    "NVIDIA B200": 148,
    "NVIDIA L40S": 142,
    "NVIDIA A10": 72,
    "NVIDIA GeForce RTX 4090": 128,
    "NVIDIA GeForce RTX 5090": 170,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": 188,
}


@pytest.mark.parametrize("gpu", SMS)
def test_the_stated_peaks_are_those_at_one_clock_of_the_tensor_cores(gpu: str) -> None:
    clocks = {
        unit: peak / SMS[gpu] / PER_CYCLE[gpu][unit] / 1e6 for unit, peak in PEAKS[gpu].items()
    }
    plain = clocks.pop("float32")
    assert max(clocks.values()) < 1.02 * min(clocks.values())
    assert 1_350 < min(clocks.values()) <= 1.01 * plain < 2_700


def test_every_unit_with_a_peak_has_its_flops_per_cycle() -> None:
    nvidia = {gpu: units for gpu, units in PEAKS.items() if gpu.startswith("NVIDIA")}
    assert PER_CYCLE.keys() == nvidia.keys()
    for gpu, units in nvidia.items():
        assert units.keys() <= PER_CYCLE[gpu].keys()
