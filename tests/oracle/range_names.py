"""Names of ranges: without PyTorch's serial numbers, and without numbers that count (spec §7)."""

import re
from collections import defaultdict
from collections.abc import Iterable

COUNTS_TIME = {
    *("step", "timestep", "iter", "iteration", "epoch", "batch", "minibatch", "microbatch"),
    *("episode", "rollout", "update", "round", "cycle", "request", "frame", "token"),
}
NUMBER_WORDS = {"id", "idx", "index", "no", "nr", "number"}
TAILS = (", seq =", ", op_id =", ", sizes =", ", input_op_ids =")


def range_name(name: str) -> str:
    """§7.6: everything from `, seq =` or one of the others on is dropped."""
    for tail in TAILS:
        name = name.split(tail, 1)[0]
    return name


def is_operator(name: str) -> bool:
    """§7.6: the raw name of an operator has `, seq =`, or `::` before one of the others."""
    return ", seq =" in name or any("::" in name.rpartition(tail)[0] for tail in TAILS[1:])


def words(name: str) -> list[str]:
    """§7.7: runs of letters; a capital between small letters begins another word."""
    return re.findall(r"[^\W\d_]+", re.sub(r"([a-z])([A-Z][a-z])", r"\1 \2", name))


def stem(name: str) -> str | None:
    """§7.7: the name without its trailing number, if the word before says when; else None."""
    rest = name.rstrip()
    if rest.endswith(("]", ")")):
        rest = rest[:-1]
    digits = re.search(r"\d+([./]\d+)*$", rest, re.ASCII)
    if digits is None:
        return None
    rest = rest[: digits.start()].rstrip(" _-:#=[(")
    shorter = rest.removesuffix(".")
    if shorter[-1:].isalpha() and words(shorter)[-1].lower() in NUMBER_WORDS:
        rest = shorter[: -len(words(shorter)[-1])].rstrip(" _-")
    if not rest[-1:].isalpha() or words(rest)[-1].lower() not in COUNTS_TIME:
        return None
    return rest


def grouped(names: Iterable[str]) -> dict[str, str]:
    """§7.6, §7.7: the normalised name of each raw name.

    A number is dropped if two or more names differ in nothing else. `ProfilerStep#7` loses its
    number even alone.
    """
    plain = {name: range_name(name) for name in names}
    alike: dict[str | None, set[str]] = defaultdict(set)
    for name in plain.values():
        alike[stem(name)].add(name)
    found = {}
    for raw, name in plain.items():
        kind = stem(name)
        several = kind is not None and (len(alike[kind]) > 1 or kind == "ProfilerStep")
        found[raw] = kind if kind is not None and several else name
    return found
