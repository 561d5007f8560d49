"""The rules, one per file: each looks at a subject and says what could be changed there."""

from collections.abc import Callable, Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.rules.allocator_churn import allocator_churn
from nsysflow.analysis.findings.rules.blocking_copies import blocking_copies
from nsysflow.analysis.findings.rules.data_loading import data_loading
from nsysflow.analysis.findings.rules.host_code import host_code
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from nsysflow.analysis.findings.rules.waits import waits
from nsysflow.analysis.findings.subject import Subject

Rule = Callable[[Subject], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    waits,
    blocking_copies,
    allocator_churn,
    launch_bound,
    data_loading,
    host_code,
)
"""All rules. Their order only decides between findings that save the same."""
