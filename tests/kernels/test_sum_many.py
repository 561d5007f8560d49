"""sum_many matches a loop of sums in float64."""

import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import sum_many as module
from nsysflow.kernels.arguments import FLOATS
from nsysflow.kernels.sum_many import CHUNK_BYTES, SumTable, sum_many, sum_many_ref, sum_table
from tests.kernels.hopper import compiled_for_hopper, shaped
from tests.kernels.host_cuda import launch_on_host

CHUNK = CHUNK_BYTES // 4
SIZES = [0, 1, 3, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 4 * CHUNK + 3]

Sum = Callable[[SumTable], Tensor]

DRIVER = """
extern "C" void run(int blocks, int threads, const Entry* entries, float* partials, int* arrived,
                    float* sums) {
    on_blocks(blocks, threads, [=] { sum_many(entries, partials, arrived, sums); });
}
"""


@pytest.fixture(params=["triton", "cuda"])
def total(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> Sum:
    """`sum_many` on each backend; without a GPU the CUDA source is compiled for the host."""
    if request.param == "triton" or device.type == "cuda":
        return lambda table: sum_many(table, backend=request.param)
    launch_on_host(monkeypatch, DRIVER)

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


def within(begin: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor that begins at an element of a longer one of NaN."""
    longer = torch.full((begin + size + 8,), torch.nan, device=device, dtype=dtype)
    return longer[begin : begin + size].normal_()


def agree(given: Tensor, many: Sequence[Tensor]) -> None:
    """Check that each sum equals that in float64, up to the rounding of float32."""
    wanted = sum_many_ref([tensor.double() for tensor in many])
    magnitude = sum_many_ref([tensor.double().abs() for tensor in many])
    assert given.dtype == torch.float32
    assert given.shape == wanted.shape
    assert ((given.double() - wanted).abs() <= 1e-6 * magnitude).all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_tensors_of_any_size_sum_up(dtype: torch.dtype, total: Sum, device: torch.device) -> None:
    many = tensors(SIZES, device, dtype)
    many += [torch.randn(shape, device=device).to(dtype) for shape in ((), (2, 0, 7), (2, 3, 4))]
    many += [within(begin, size, dtype, device) for size in (1, 6, 9) for begin in range(9)]
    many += [within(begin, 2 * CHUNK + 9, dtype, device) for begin in (3, 5)]
    agree(total(sum_table(many)), many)


@pytest.mark.parametrize("size", [0, 1, CHUNK + 1])
def test_a_table_of_one_tensor(size: int, total: Sum, device: torch.device) -> None:
    only = tensors([size], device)
    agree(total(sum_table(only)), only)


def test_more_chunks_than_are_added_together(
    total: Sum, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Triton adds this many partial sums at a time, CUDA C++ one per thread
    monkeypatch.setattr(module, "_PARTIALS_AT_ONCE", 32)
    monkeypatch.setattr(module, "_WARPS", 1)
    monkeypatch.setattr(module, "CHUNK_BYTES", 512)
    many = tensors([65 * 128 + 1, 32 * 128], device)
    agree(total(sum_table(many)), many)


def test_a_table_has_the_bits_of_a_separate_one(total: Sum, device: torch.device) -> None:
    many = tensors([17, CHUNK + 1, 4 * CHUNK + 3], device)
    table = sum_table(many)
    for _ in range(2):
        alone = torch.cat([total(sum_table([tensor])) for tensor in many])
        assert torch.equal(total(table), alone)
        for tensor in many:
            tensor.mul_(3)


def test_a_table_keeps_the_memory_of_deleted_tensors(device: torch.device) -> None:
    many = tensors([2000, 3000], device)
    wanted = sum_many_ref(many)
    table = sum_table(many)
    storages = [weakref.ref(tensor.untyped_storage()) for tensor in table.tensors]
    many[0].data = torch.zeros(5, device=device)
    del many
    others = [torch.full((size,), torch.nan, device=device) for size in (2000, 3000) * 4]
    torch.testing.assert_close(sum_many(table), wanted)
    del table, others
    assert [storage() for storage in storages] == [None, None]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_nan_changes_only_its_own_sum(bad: float, total: Sum, device: torch.device) -> None:
    many = tensors([50, 2 * CHUNK + 3, 50], device)
    many[1][-1] = bad
    sums = total(sum_table(many))
    assert sums.isfinite().tolist() == [True, False, True]
    assert torch.equal(sums[1].isnan(), torch.tensor(bad != bad, device=device))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_h200_runs_16_programs_per_sm_with_16_byte_loads(dtype: torch.dtype) -> None:
    table = sum_table([shaped(2**20, dtype=dtype)])
    compiled = compiled_for_hopper(lambda: sum_many(table))["_sum_many"]
    assert compiled.local_bytes == 0
    assert compiled.registers <= 32
    assert compiled.loads["v4.b32"] == 8
