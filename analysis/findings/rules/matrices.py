"""`small-matrices`: many small matrices are factorized, each by a library for large ones."""

from collections.abc import Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.launching_lines import of_the_same_lines
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

FACTORIZES: Final = r"\b(?:getrf\w*|trsm_batch\w*)\b"
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


def small_matrices(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that factorize batches of small matrices, and solve with them, with what else their
    line launches: pointers, copies, checks.

    A step with the inverses of 1.57 M matrices of 3 x 3 took 6.34 ms by torch.linalg.inv, and 3.84
    by a formula (H200, 2026-11-29).
    """
    factorizes = matching(subject.kernels["name"], FACTORIZES)
    if not factorizes.any():
        return
    line = of_the_same_lines(subject, factorizes)
    rows = kernels_to_drop(subject, line, MATRICES_PCT)
    if rows.is_empty():
        return
    yield kernel_finding(
        subject,
        rows,
        rule="small-matrices",
        title="small matrices are factorized one by one:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(in_words(subject, rows), LAUNCHES_TOO),
    )
