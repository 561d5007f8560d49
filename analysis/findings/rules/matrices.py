"""Matrices that take longer than they need to, as a library for large ones handles them.

* `small-matrices`: many small matrices are factorized, or multiplied.
* `lu-factorization`: one large matrix is factorized by LU.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.findings.launching_lines import of_the_same_lines
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

FACTORIZES: Final = r"\b(?:getrf_semiwarp\w*|trsm_batch\w*)\b"
"""cuBLAS's kernels for batches: LU, and solving with its triangles."""

MATRICES_PCT: Final = 10.0
"""Less of the kernel time is not worth a formula of one's own."""

CHANGE: Final = (
    "of 2 x 2 and 3 x 3 matrices write the inverse out: cofactors over the determinant, for"
    " 3 x 3 by torch.linalg.cross of its columns",
    "of a rotation take the transpose; of a rigid motion R.mT and -R.mT @ t",
    "torch.linalg.solve(A, b) where the inverse only multiplies b; cholesky where A is symmetric"
    " and positive definite",
)

TILE: Final = r"tilesize32x32x|gemm_32x32_"
"""In the names of cuBLAS's kernels whose blocks compute 32 x 32 numbers each."""

MANY_MATRICES: Final = 1000
"""So many in a launch fill a GPU with blocks that hold few numbers each."""

CHANGE_OF_PRODUCTS: Final = (
    "2 x 2 to 4 x 4 matrices: write the sums out, and torch.compile them: one pass over memory",
    "the same matrix for all: one product of all rows, (n, 3) @ (3, 3)",
    "diagonal matrices: R * s[..., None, :] instead of R @ diag(s)",
)

LU: Final = r"\bgetrf_pivot\b"
"""cuSOLVER's and cuBLAS's LU of a matrix larger than a batch of them has, with pivots."""

CHANGE_OF_LU: Final = (
    "a symmetric positive definite matrix: use its Cholesky factor, which is half the work. The"
    " log-determinant is 2 * L.diagonal().log().sum()",
    "a factor that is there already: use it again, torch.cholesky_solve(b, L)",
    "several right sides: torch.linalg.lu_factor once, and lu_solve for each of them",
)


def small_matrices(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that factorize batches of small matrices, and solve with them, with what else their
    line launches: pointers, copies, checks. And products of small matrices.

    A step with the inverses of 1.57 M matrices of 3 x 3 took 6.34 ms by torch.linalg.inv, and 3.84
    by a formula. One whose covariances of 600 k splats are products with diagonal matrices took
    26.4 ms, and 19.7 with one product instead of three (H200, 2026-11-29).
    """
    found = (
        ("factorized", of_the_same_lines(subject, factorizes(subject)), CHANGE),
        ("multiplied", tiny_products(subject), CHANGE_OF_PRODUCTS),
    )
    for done, members, change in found:
        rows = kernels_to_drop(subject, members, MATRICES_PCT)
        if not rows.is_empty():
            yield kernel_finding(
                subject,
                rows,
                rule="small-matrices",
                title=f"small matrices are {done} one by one:"
                f" {percent(share_of_kernels(subject, rows))} of kernel time",
                change=change,
                evidence=(in_words(subject, rows), LAUNCHES_TOO),
            )


def factorizes(subject: JudgedReport) -> pl.Series:
    """Whether each kernel factorizes a batch of small matrices, or solves with them."""
    return matching(subject.kernels["name"], FACTORIZES)


def tiny_products(subject: JudgedReport) -> pl.Series:
    """Whether each kernel multiplies many matrices whose products fit in a tile of 32 x 32.

    Such a product in float32 moves a byte for every 8 operations, or for fewer. So memory is the
    limit, with or without tensor cores.
    """
    tiled = matching(subject.kernels["name"], TILE)
    if not tiled.any():
        return tiled
    grid = subject.grids[subject.kernels["detail"]]
    one_tile = (grid["grid_x"] * grid["grid_y"] == 1).fill_null(value=False)
    many = (grid["grid_z"] >= MANY_MATRICES).fill_null(value=False)
    return tiled & one_tile & many


def parts_of_solvers(subject: JudgedReport) -> pl.Series:
    """Whether each kernel is a product that a factorization consists of: on its stream, solvers'
    kernels stand before and behind it, with nothing but products between."""
    solver = pl.when(pl.col("class") != "matmul").then(pl.col("class") == "solver")
    return (
        subject.kernels.with_columns(solver.alias("solver"))
        .select(
            (pl.col("class") == "matmul")
            & pl.col("solver").forward_fill().over("lane")
            & pl.col("solver").backward_fill().over("lane")
        )
        .to_series()
        .fill_null(value=False)
    )


def lu_factorization(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that factorize a large matrix by LU, with what else their lines launch, and what
    solvers do in the backward pass.

    A Gaussian process whose log-determinant came from torch.logdet beside its Cholesky factor took
    16.1 ms a step, and 12.0 with the factor's diagonal (H200, 2026-11-29).
    """
    lu = matching(subject.kernels["name"], LU)
    if not lu.any():
        return
    solver = (subject.kernels["class"] == "solver") | parts_of_solvers(subject)
    backward = solver & is_backward(subject.view, subject.kernels)
    rows = kernels_to_drop(subject, of_the_same_lines(subject, lu) | backward, MATRICES_PCT)
    if rows.is_empty():
        return
    finding = kernel_finding(
        subject,
        rows,
        rule="lu-factorization",
        title="a matrix is factorized by LU:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_LU,
        evidence=(
            in_words(subject, rows),
            "LU looks for a pivot in one column after another: few blocks work meanwhile",
        ),
        at=subject.kernels.filter(lu),
    )
    yield counting_launches(subject, finding, rows["op"])
