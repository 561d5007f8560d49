"""Every kind of finding as a SARIF rule: the words of `nsysflow explain`."""

from collections.abc import Iterator, Sequence
from typing import Any

from nsysflow.analysis.findings.explanation import Explanation, explanations


def rules() -> list[dict[str, Any]]:
    """All rules, also those that found nothing here: GitHub expects the same list each time."""
    return [_rule(name, one) for name, one in explanations().items()]


def _rule(name: str, one: Explanation) -> dict[str, Any]:
    shown = "\n".join(_help(name, one))
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": _sentence(one.about)},
        "fullDescription": {"text": one.why},
        "help": {"text": shown, "markdown": shown},
        "defaultConfiguration": {"level": "note"},
        "properties": {"tags": ["performance", "gpu"], "problem.severity": "recommendation"},
    }


def _help(name: str, one: Explanation) -> Iterator[str]:
    """What it is, why it costs time, what to change: Markdown that reads well as it is."""
    yield f"# {name}: {one.about}"
    yield from ("", one.why)
    yield from _code("Before", one.before)
    yield from _code("After", one.after)
    yield from _points("Sure signs", one.signs)
    yield from _points("When to leave it", one.leave)
    yield from ("", "On your machine:", "", "```sh", f"nsysflow explain {name}")
    yield from (f"nsysflow analyze REPORT --table {table}" for table in one.tables)
    yield "```"


def _code(title: str, code: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", "```python", code.strip("\n"), "```")


def _points(title: str, items: Sequence[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "", *(f"- {item}" for item in items))


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
