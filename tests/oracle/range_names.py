"""What ranges are called (spec §7): without serial numbers, and without numbers that count."""

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
    """§7: from `, seq =`, `, op_id =`, `, sizes =` or `, input_op_ids =` on all is dropped."""
    for tail in TAILS:
        name = name.split(tail, 1)[0]
    return name


def is_operator(name: str) -> bool:
    """§7: an operator's raw name has `, seq =`, or `::` before another of those."""
    return ", seq =" in name or any("::" in name.rpartition(tail)[0] for tail in TAILS[1:])


def words(name: str) -> list[str]:
    """Runs of letters; a capital between small letters begins another word."""
    return re.findall(r"[^\W\d_]+", re.sub(r"([a-z])([A-Z][a-z])", r"\1 \2", name))


def stem(name: str) -> str | None:
    """§7: what stands before a trailing number, if its last word counts time, else nothing."""
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
    """§7: the name of each raw name. Where two names or more differ in such a number only, they are
    called by what stands before it; `ProfilerStep#7` is a step however few there are."""
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
