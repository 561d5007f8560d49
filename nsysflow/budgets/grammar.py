"""A budget as it is typed: `step_ms<=5`, `step_ms<=1.05*baseline`, `finding:launch-bound=none`."""

import re
from dataclasses import dataclass
from math import inf, isinf
from typing import Final, NoReturn

from nsysflow.base.errors import WrongBudget

FINDING: Final = "finding:"
"""What the name of a budget on a finding begins with."""

_NUMBER: Final = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_BASELINE: Final = rf"(?:(?P<before>{_NUMBER})\s*\*\s*)?baseline(?:\s*\*\s*(?P<after>{_NUMBER}))?"
_LIMIT: Final = re.compile(
    rf"\s*(?P<name>.+?)\s*(?<![=<>])(?P<op><=|<)\s*(?:(?P<number>{_NUMBER})|{_BASELINE})\s*"
)
_NONE: Final = re.compile(rf"\s*{FINDING}(?P<rule>[^=]+?)\s*=\s*none\s*")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A largest value for a figure, or a finding that must not be there.

    Attributes:
        text: as it was typed.
        where: the file and line that it stands in; empty if it was typed.
        name: of the figure, in the unit that its ending says; `finding:RULE` of a finding.
        strict: whether the limit itself is too much.
        limit: in the unit of the name, or a factor of the baseline; 0 for a finding.
        of_baseline: whether the limit is such a factor.
    """

    text: str
    where: str = ""
    name: str
    strict: bool = False
    limit: float = 0.0
    of_baseline: bool = False

    @property
    def rule(self) -> str | None:
        """The kind of finding that must not be there; None where a figure has a limit."""
        return self.name.removeprefix(FINDING) if self.name.startswith(FINDING) else None

    @property
    def quoted(self) -> str:
        """What to call it in a message."""
        return f"{self.text!r} in {self.where}" if self.where else f"{self.text!r}"


def budget(text: str, where: str = "") -> Budget:
    """A budget from its text.

    Args:
        text: what was typed.
        where: the file and line that it stands in; empty if it was typed.

    Raises:
        WrongBudget: it is no budget.
    """
    text = text.strip()
    as_typed = Budget(text=text, where=where, name="")
    if text.startswith(FINDING):
        return _without_finding(as_typed)
    parts = _LIMIT.fullmatch(text)
    if parts is None or isinf(float(parts["number"] or 0)):
        _refuse(as_typed)
    factors = [float(each) for each in parts.group("before", "after") if each is not None]
    number = parts["number"]
    if len(factors) > 1 or 0 in factors or inf in factors:
        seen = f"{as_typed.quoted} takes one factor of the baseline, above 0"
        raise WrongBudget(seen, "Such as step_ms<=1.05*baseline")
    return Budget(
        text=text,
        where=where,
        name=parts["name"],
        strict=parts["op"] == "<",
        limit=float(number) if number else (factors or [1.0])[0],
        of_baseline=number is None,
    )


def _without_finding(typed: Budget) -> Budget:
    parts = _NONE.fullmatch(typed.text)
    if parts is None:
        seen = f"{typed.quoted} is not finding:RULE=none"
        raise WrongBudget(seen, "A finding is there or not; such as finding:sync-in-loop=none")
    return Budget(text=typed.text, where=typed.where, name=f"{FINDING}{parts['rule']}")


def _refuse(typed: Budget) -> NoReturn:
    if re.search(r">|==|=<", typed.text):
        advice = "A budget says how much is allowed, so it takes <= or <"
    elif re.search(rf"<=?\s*{_NUMBER}\s*[^\s\d.*]+$", typed.text):
        advice = "The unit is in the name: step_ms<=5 or step_us<=5000; a limit is a number"
    else:
        advice = (
            "NAME is a figure such as step_ms; LIMIT is a number, baseline, or a factor of it as in"
            " 1.05*baseline"
        )
    raise WrongBudget(f"{typed.quoted} is not NAME<=LIMIT or NAME<LIMIT", advice)
