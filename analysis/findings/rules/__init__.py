"""The rules, one per file: each looks at a subject and says what could be changed there."""

from collections.abc import Callable, Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.rules import launch_bound, waits
from nsysflow.analysis.findings.subject import Subject

Rule = Callable[[Subject], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (waits.waits, launch_bound.launch_bound)
"""All rules. Their order only decides between findings that save the same."""
