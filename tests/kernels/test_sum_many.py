"""sum_many matches a loop of sums in float64."""

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import sum_many as module
from nsysflow.kernels.sum_many import (
    CHUNK_BYTES,
    SumTable,
    sum_many,
    sum_many_ref,
    sum_table,
)
from tests.kernels.hopper import Kernel, compile_for_hopper, pointers
from tests.kernels.host_cuda import runner

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CHUNK = CHUNK_BYTES // 4
SIZES = [0, 1, 3, 17, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5, 5 * CHUNK + 3]

Sum = Callable[[SumTable], Tensor]

DRIVER = """
extern "C" void run(int blocks, int threads, const Entry* entries, float* partials, int* arrived,
                    float* sums) {
    on_blocks(blocks, threads, [=] { sum_many(entries, partials, arrived, sums); });
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for CUDA sources built for the host."""
    return tmp_path_factory.mktemp("sum_many")


@pytest.fixture(params=["triton", "cuda"])
def total(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    built: Path,
    device: torch.device,
) -> Sum:
    """`sum_many` on each backend; without a GPU the CUDA source is compiled for the host."""
    if request.param == "triton" or device.type == "cuda":
        return lambda table: sum_many(table, backend=request.param)
    monkeypatch.setattr("nsysflow.kernels.nvrtc.launch", runner(built, DRIVER))

    def on_the_host(table: SumTable) -> Tensor:
        sums = torch.empty(len(table.tensors))
        module._launch_cuda(table, sums)
        return sums

    return on_the_host


def tensors(
    sizes: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """One tensor of each size, with a mean of 1."""
    return [(torch.randn(size, device=device) + 1).to(dtype) for size in sizes]


def agree(given: Tensor, many: Sequence[Tensor]) -> None:
    """Check that each sum equals that in float64, up to the rounding of float32."""
    wanted = sum_many_ref([tensor.double() for tensor in many])
    magnitude = sum_many_ref([tensor.double().abs() for tensor in many])
    assert given.dtype == torch.float32
    assert given.shape == wanted.shape
    assert ((given.double() - wanted).abs() <= 1e-6 * magnitude).all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_size_is_summed(dtype: torch.dtype, total: Sum, device: torch.device) -> None:
    many = tensors(SIZES, device, dtype)
    agree(total(sum_table(many)), many)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("size", [1, 6, 9, 100, 2 * CHUNK + 9])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_can_begin_at_any_element(
    dtype: torch.dtype, size: int, total: Sum, device: torch.device
) -> None:
    poison = torch.full((8 + size + 8,), torch.nan, device=device, dtype=dtype)
    many = []
    for begin in range(9):
        whole = poison.clone()
        whole[begin : begin + size] = torch.randn(size, device=device).to(dtype)
        many.append(whole[begin : begin + size])
    agree(total(sum_table(many)), many)


def test_tensors_can_have_any_shape(total: Sum, device: torch.device) -> None:
    many = [torch.randn(shape, device=device) for shape in ((), (3, 5), (2, 0, 7), (2, 3, 4, 5))]
    agree(total(sum_table(many)), many)


def test_more_chunks_than_are_added_together(
    total: Sum, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Triton adds this many partial sums at a time, CUDA C++ one per thread
    monkeypatch.setattr(module, "_PARTIALS_AT_ONCE", 32)
    monkeypatch.setattr(module, "_WARPS", 1)
    many = tensors([69 * CHUNK + 1, 32 * CHUNK, 32 * CHUNK + 1], device)
    agree(total(sum_table(many)), many)


def test_a_table_can_be_used_again_after_its_tensors_change(
    total: Sum, device: torch.device
) -> None:
    many = tensors(SIZES, device)
    table = sum_table(many)
    first = total(table)
    assert torch.equal(first, total(table))
    for tensor in many:
        tensor.mul_(3)
    agree(total(table), many)


def test_sums_are_the_same_bits_in_a_separate_table(total: Sum, device: torch.device) -> None:
    many = tensors(SIZES, device)
    sums = total(sum_table(many))
    for number, tensor in enumerate(many):
        assert total(sum_table([tensor])).item() == sums[number].item()


def test_a_table_keeps_the_memory_of_deleted_tensors(total: Sum, device: torch.device) -> None:
    many = tensors([2000, 3000], device)
    wanted = sum_many_ref(many)
    table = sum_table(many)
    storages = [weakref.ref(tensor.untyped_storage()) for tensor in table.tensors]
    many[0].data = torch.zeros(5, device=device)
    del many
    gc.collect()
    others = [torch.full((size,), torch.nan, device=device) for size in (2000, 3000) * 4]
    torch.testing.assert_close(total(table), wanted)
    del table, others
    gc.collect()
    assert [storage() for storage in storages] == [None, None]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_nan_or_an_infinity_changes_only_its_own_sum(
    bad: float, total: Sum, device: torch.device
) -> None:
    many = tensors([50, 2 * CHUNK + 3, 50], device)
    many[1][-1] = bad
    sums = total(sum_table(many))
    assert sums.isfinite().tolist() == [True, False, True]
    assert torch.equal(sums[1].isnan(), torch.tensor(bad != bad, device=device))


def test_no_tensors_give_no_sums() -> None:
    assert sum_many(sum_table([])).shape == (0,)


def test_small_terms_are_not_lost_in_large_sums(total: Sum, device: torch.device) -> None:
    many = [torch.ones(300_000, device=device, dtype=torch.bfloat16)]
    assert total(sum_table(many)).item() == 300_000


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_an_h200_runs_16_programs_per_sm_with_16_byte_loads(kind: str, size: int) -> None:
    constants: dict[str, int | str] = {"TYPE": kind, "CHUNK": CHUNK_BYTES // size}
    compiled = compile_for_hopper(
        Kernel(
            module="sum_many",
            name="_sum_many",
            types=pointers(i64="entries", i32="arrived", fp32="partials sums"),
            constants=constants | {"LANES": 16 // size, "PARTIALS": 512},
            warps=4,
        )
    )
    assert compiled.local_bytes == 0
    assert compiled.registers <= 32
    assert compiled.loads["v4.b32"] == 8
