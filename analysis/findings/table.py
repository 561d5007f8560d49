"""Findings as a table."""

from collections.abc import Iterator

import polars as pl

from nsysflow.analysis.findings.find import Found
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.tables.schema import FINDINGS
from nsysflow.base.units import duration


def findings_table(found: Found) -> pl.DataFrame:
    """The FINDINGS table."""
    rows = [
        {
            "report": one.report,
            "process": one.finding.process,
            "device": one.finding.device,
            "finding": number,
            "rule": one.finding.rule,
            "title": one.finding.title,
            "phase": one.finding.phase,
            "source": one.finding.source or None,
            "via": one.finding.via or None,
            "culprit": one.finding.culprit,
            "saving_low_ns": one.low_ns,
            "saving_high_ns": one.high_ns,
            "saving_pct": one.pct,
            "method": one.finding.method,
            "steps": one.finding.steps,
            "evidence": "; ".join([*_later(one), *one.finding.evidence]),
            "change": "; ".join(one.finding.change),
        }
        for number, one in enumerate(found.valued, start=1)
    ]
    return pl.DataFrame(rows, schema=FINDINGS)


def _later(one: Valued) -> Iterator[str]:
    """That the host hides what a finding saves."""
    if one.later_ns:
        yield f"up to {duration(one.later_ns)} once the host keeps up; until then next to nothing"
