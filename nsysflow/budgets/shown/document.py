"""The JSON document of `nsysflow check`."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import nsysflow
from nsysflow.budgets.judging import Judged
from nsysflow.compare.captures import Capture

SCHEMA: Final = 1
"""Additions to the document keep it, a change of meaning raises it."""


def check_json(judged: Sequence[Judged], captures: Sequence[Capture]) -> str:
    """The document: the outcome, and a budget per line, the worst first."""
    head = {
        "schema": SCHEMA,
        "tool": {"name": "nsysflow check", "version": nsysflow.__version__},
        "captures": [each.name for each in captures],
        "outcome": judged[0].verdict,
    }
    about = ",\n".join(f"{_text(name)}: {_text(value)}" for name, value in head.items())
    budgets = ",\n".join(_text(_budget(each)) for each in judged)
    return f'{{\n{about},\n"budgets": [\n{budgets}\n]\n}}'


def _budget(judged: Judged) -> dict[str, Any]:
    """A budget; times in ns, shares in percent."""
    held: dict[str, Any] = {
        "budget": judged.budget.text,
        "name": judged.budget.name,
        "verdict": judged.verdict,
        "lost_at": [{"source": each.source, "what": each.what} for each in judged.culprits],
    }
    measured = judged.measured
    if measured is None:
        return held | {"found_in": judged.found_in}
    return held | {
        "unit": measured.unit,
        "value": measured.value,
        "low": _finite(measured.low),
        "high": _finite(measured.high),
        "limit": measured.most,
        "factor_of_baseline": measured.factor,
        "margin": measured.most - measured.value,
        "counted": measured.counted,
        "needed": measured.needed,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
