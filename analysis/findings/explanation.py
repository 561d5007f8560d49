"""What there is to say about each rule, whatever report it found something in."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

Effort = Literal["argument", "line", "lines", "restructure", "other"]
"""What a change takes: an argument or a line of the program, some lines, another structure; `other`
is not a change of the program."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One rule, from rules/RULE.toml.

    Attributes:
        about: what it finds, a clause.
        effort: what the change takes, so that of two like savings the cheap one comes first.
        why: why that costs time, a paragraph.
        before: PyTorch code that has it.
        after: the same code changed.
        signs: what shows that it is this and nothing else, a clause each.
        leave: when not to change it, a clause each.
        causes: which gaps are behind it, by their cause; none where the GPU is busy.
        tables: what shows it.
        advice: what to do instead where a program is not plain PyTorch, by
            `Frameworks.advice_keys`; of wrappers of PyTorch what to try first.
    """

    about: str
    effort: Effort
    why: str
    before: str
    after: str
    signs: tuple[str, ...]
    leave: tuple[str, ...]
    causes: tuple[str, ...]
    tables: tuple[str, ...]
    advice: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_RULES: Final = files("nsysflow.analysis.findings") / "rules"


def explanations() -> dict[str, Explanation]:
    """All rules that are explained, by name."""
    names = (file.name for file in _RULES.iterdir() if file.name.endswith(".toml"))
    rules = sorted(name.removesuffix(".toml") for name in names)
    return {rule: explanation_of(rule) for rule in rules}


@cache
def explanation_of(rule: str) -> Explanation:
    """A rule; its paragraph without the line breaks of the file."""
    fields: dict[str, Any] = tomllib.loads((_RULES / f"{rule}.toml").read_text(encoding="utf-8"))
    fields |= {name: tuple(fields[name]) for name in ("signs", "leave", "causes", "tables")}
    fields["advice"] = {key: tuple(lines) for key, lines in fields.get("advice", {}).items()}
    return Explanation(**fields | {"why": " ".join(fields["why"].split())})
