"""Annotations of a pull request: the workflow commands that GitHub's runner reads."""

from collections.abc import Callable, Iterator, Sequence

from nsysflow.budgets.culprit import Culprit
from nsysflow.budgets.judging import Judged
from nsysflow.budgets.shown.words import sentence


def annotations(
    judged: Sequence[Judged], captures: int, find: Callable[[str], str | None]
) -> Iterator[str]:
    """A command per budget that is not kept: an error if crossed, a warning if too noisy.

    Args:
        judged: the budgets.
        captures: how many were judged.
        find: the file of the repository that a report names; None without one.
    """
    for each in judged:
        if each.verdict == "within":
            continue
        kind = "error" if each.verdict == "crossed" else "warning"
        properties = _place(each.culprits, find) | {"title": f"nsysflow check: {each.budget.text}"}
        shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        text = "\n".join([sentence(each, captures), *(culprit.what for culprit in each.culprits)])
        yield f"::{kind} {shown}::{_data(text)}"


def _place(culprits: Sequence[Culprit], find: Callable[[str], str | None]) -> dict[str, str]:
    """The file and line of an annotation; empty where the repository has no such file."""
    for culprit in culprits:
        if culprit.line is not None:
            file = find(culprit.line.file)
            return {} if file is None else {"file": file, "line": str(culprit.line.number)}
    return {}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
