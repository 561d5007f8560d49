"""The peaks of GPUs."""

import pytest

from nsysflow.base.peaks import MEMORY, NVLINK, PEAKS, UNITS, peak_flops


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
