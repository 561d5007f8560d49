"""What a program does with products of matrices: from marks to notes and findings, and in packed
reports."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import astuple
from msgspec.structs import replace as changed

from nsysflow.analysis.findings.rules.products import product_order
from nsysflow.analysis.findings.rules.seen_products import merged_adapter, zeros_in_products
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.observed import MergedAdapter, OrderedProducts, SeenModule, SparseProducts
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.packed import pack_trace
from nsysflow.runtime.protocol import MERGED_ADAPTERS, PRODUCT_ORDER, ZEROS_IN_PRODUCTS
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import left_of
from tests.analysis.load.kineto.traces import kernel, write
from tests.analysis.test_unused_gradients import BACKWARD, FORWARD, WGRAD, mark, notes_of
from tests.analysis.test_unused_gradients import findings_of as of_module
from tests.exports import write_export

ORDERED: Final = OrderedProducts(
    *("Attention", "Attention", "forward", (), 1_000, 1_000, 2, 24, 24),
    *(6_400, 6_400, 12_800, ("train.py:6",), 100, 32, (4096, 64, 4096, 64)),
    left_first=True,
)

SPARSE: Final = SparseProducts(
    *("Graph", "Graph", "forward", (), 1_000, 1_000, 2, 12, 12),
    *(6_400, 6_400, 12_800, ("train.py:6",), 6_200),
    sizes=(4096, 4096),
)

MERGED: Final = MergedAdapter(
    *("Model", "Model", "forward", (), 1_000, 1_000, 2, 24, 24),
    *(1_000, 2_000, 10_000, ("train.py:6",), 4_000, 500),
    sizes=(4096, 16, 4096),
)

NOTED: Final[dict[str, tuple[NoteKind, SeenModule, str]]] = {
    PRODUCT_ORDER: (
        NoteKind.PRODUCT_ORDER,
        ORDERED,
        "Attention multiplies three matrices in the costly order",
    ),
    ZEROS_IN_PRODUCTS: (
        NoteKind.ZEROS_IN_PRODUCTS,
        SPARSE,
        "97 % of a factor in products of Graph is zeros",
    ),
    MERGED_ADAPTERS: (
        NoteKind.MERGED_ADAPTERS,
        MERGED,
        "Model merges low-rank adapters into their weights at each call",
    ),
}


@pytest.mark.parametrize("key", NOTED)
def test_the_last_mark_of_a_process_is_a_note(key: str, tmp_path: Path) -> None:
    kind, module, text = NOTED[key]
    marks = [mark(kind=key), mark(astuple(module), kind=key)]
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=marks)
    assert notes_of(report, kind) == [(text, module)]
    for packed, pack_it in (("p.sqlite", pack), ("p.pftrace", pack_trace)):
        pack_it(report, tmp_path / packed)
        assert notes_of(tmp_path / packed, kind) == [(text, module)]


@pytest.mark.parametrize("key", NOTED)
def test_torch_profilers_traces_have_the_same_note(key: str, tmp_path: Path) -> None:
    kind, module, text = NOTED[key]
    report = write(tmp_path, kernel(), nsysflow={key: [astuple(module)]})
    assert notes_of(report, kind) == [(text, module)]


ordered_of = partial(of_module, rule=product_order)


def test_products_take_less_by_what_the_other_order_spares() -> None:
    (one,) = ordered_of(ORDERED)
    # 60 of 80 us of the forward pass, and so 3 of 4 parts of the products of the backward pass
    assert left_of(one) == {WGRAD: round(1 - 0.75 * 63 / 64, 2), names.PRODUCT: 0.26}
    assert one.method == "bound"
    assert one.title == ("three matrices are multiplied in the costly order: train.py:6 in forward")
    assert one.change[0].startswith("q @ (k.transpose(-2, -1) @ v) instead of")
    assert one.evidence[:3] == (
        "4096 x 64 by 64 x 4096 by 4096 x 64 in batches of 32: 64 times the arithmetic of the other"
        " order",
        "Attention computes 24 such products in 2 steps, and nothing else reads the product"
        " between",
        "1 kernel a step, 60.0 us, 15 % of kernel time",
    )


def test_without_gradients_the_backward_pass_stays() -> None:
    (one,) = ordered_of(changed(ORDERED, learning=0))
    assert left_of(one) == {names.PRODUCT: 0.26}


def test_of_the_products_of_its_lines_they_have_their_share() -> None:
    (one,) = ordered_of(changed(ORDERED, learning=0, of_lines=12_800))
    assert left_of(one) == {names.PRODUCT: 0.63}  # half of 60 of 80 us, but for a 64th


@pytest.mark.parametrize("phase", ["forward", "Attention"])
def test_without_lines_they_have_their_share_of_the_range(phase: str) -> None:
    module = changed(ORDERED, lines=(), learning=0, phase=phase)
    (one,) = ordered_of(module, phase, until_us=95)
    assert left_of(one) == {names.PRODUCT: 0.51}
    assert one.title.endswith("costly order, most at train.py:6 in forward")


def test_products_from_the_right_have_the_mirrored_advice() -> None:
    (one,) = ordered_of(changed(ORDERED, left_first=False))
    assert one.change[0].startswith("(a @ b) @ c instead of a @ (b @ c)")


@pytest.mark.parametrize(
    "module",
    [
        changed(ORDERED, otherwise=0),
        changed(ORDERED, otherwise=6_400),
        changed(ORDERED, of_lines=1),
        changed(ORDERED, otherwise=6_300),
        changed(ORDERED, lines=(), phase="elsewhere"),
    ],
    ids=["nothing", "as much", "more than its lines", "hardly less", "elsewhere"],
)
def test_nothing_is_said_of_an_order_that_costs_little(module: OrderedProducts) -> None:
    assert ordered_of(module) == []


sparse_of = partial(of_module, rule=zeros_in_products)


def test_products_take_less_by_the_share_of_zeros() -> None:
    (one,) = sparse_of(SPARSE)
    # the factor has no gradient, so half of a product's part of the backward pass
    assert left_of(one) == {WGRAD: round(1 - 0.75 * 0.97 / 2, 2), names.PRODUCT: 0.27}
    assert one.method == "bound"
    assert one.title == "97 % of a product's factor is zeros: train.py:6 in forward"
    assert one.change[0].startswith("blocks on a diagonal, such as a batch of graphs: torch.bmm")
    assert one.evidence[:3] == (
        "a 4096 x 4096 factor has 97 % zeros in each step (seen in 2 steps)",
        "Graph computes 12 products with such a factor in these",
        "1 kernel a step, 60.0 us, 15 % of kernel time",
    )


def test_of_products_with_zeros_the_lines_and_ranges_count_likewise() -> None:
    module = changed(SPARSE, learning=0)
    (one,) = sparse_of(changed(module, of_lines=12_800))
    assert left_of(one) == {names.PRODUCT: 0.64}
    (one,) = sparse_of(changed(module, lines=()), "forward", until_us=95)
    assert left_of(one) == {names.PRODUCT: 0.52}


@pytest.mark.parametrize(
    "module",
    [
        changed(SPARSE, of_zeros=0),
        changed(SPARSE, of_zeros=6_401),
        changed(SPARSE, of_lines=1),
        changed(SPARSE, of_lines=128_000, of_operations=128_000),
        changed(SPARSE, lines=(), phase="elsewhere"),
    ],
    ids=["none", "more than there are", "more than its lines", "too little", "elsewhere"],
)
def test_nothing_is_said_of_few_zeros(module: SparseProducts) -> None:
    assert sparse_of(module) == []


adapter_of = partial(of_module, rule=merged_adapter)


def test_an_adapter_takes_its_products_its_sums_and_the_gradient_of_the_weight() -> None:
    kernels = [(names.PRODUCT, 60, "forward:6"), (names.ADD, 20, "forward:6"), *FORWARD[2:]]
    (one,) = adapter_of(MERGED, kernels=[*kernels, *BACKWARD])
    # half of 60 of 80 us of products are the adapter's, and all sums of its line; of 80 us of
    # products 0.45 in the backward pass, by operations (4,000 + 2,000 - 1,500) / 10,000
    assert left_of(one) == {names.PRODUCT: 0.62, names.ADD: 0.5, WGRAD: 0.82}
    assert one.method == "bound"
    assert one.title == (
        "a low-rank adapter is merged into its weight at each call: train.py:6 in forward"
    )
    assert one.change[0].startswith("F.linear(x, weight) + scale * F.linear(F.linear(x, down), up)")
    assert one.evidence[:2] == (
        "4096 x 16 by 16 x 4096 is added to a weight, for 24 products (seen in 2 steps)",
        "its gradients come from that of the whole weight, which is frozen: a branch takes 21 % of"
        " the arithmetic",
    )


def test_an_adapter_without_gradients_is_merged_once() -> None:
    (one,) = adapter_of(changed(MERGED, learning=0))
    assert left_of(one) == {names.PRODUCT: 0.62}
    assert one.change[0].startswith("merge it once, before the loop")
    assert "gradients are off, and neither the adapter nor the weight changes" in one.evidence


def test_without_lines_an_adapter_has_its_share_of_the_products() -> None:
    (one,) = adapter_of(changed(MERGED, lines=(), learning=0), "forward", until_us=95)
    assert left_of(one) == {names.PRODUCT: 0.9}


@pytest.mark.parametrize(
    "module",
    [
        changed(MERGED, operations=0),
        changed(MERGED, of_lines=1),
        changed(MERGED, operations=1, learning=0, lines=()),
        changed(MERGED, lines=(), phase="elsewhere", learning=0),
    ],
    ids=["none", "more than its lines", "too little", "elsewhere"],
)
def test_nothing_is_said_of_adapters_that_take_no_time(module: MergedAdapter) -> None:
    assert adapter_of(module) == []
