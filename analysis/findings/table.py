"""Findings as a table."""

import polars as pl

from nsysflow.analysis.findings.find import Found
from nsysflow.analysis.tables.schema import FINDINGS


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
            "via": one.finding.via,
            "saving_low_ns": one.low_ns,
            "saving_high_ns": one.high_ns,
            "saving_pct": one.pct,
            "method": one.finding.method,
            "steps": one.finding.steps,
            "evidence": "; ".join(one.finding.evidence),
            "change": "; ".join(one.finding.change),
        }
        for number, one in enumerate(found.valued, start=1)
    ]
    return pl.DataFrame(rows, schema=FINDINGS)
