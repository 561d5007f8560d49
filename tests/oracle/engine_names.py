"""The names that serving engines give to the ranges of their steps (spec §23)."""

import re
from typing import Any

ENGINE_STEP = "engine step"
NUMBERS = (
    *("kind", "requests", "prefill_requests", "decode_requests", "tokens", "prefill_tokens"),
    *("decode_tokens", "context_tokens", "query_key_pairs", "padded_requests"),
)
N = r"([0-9]{1,12})"


def is_engine_step(name: str) -> bool:
    """§23.1: whether a serving engine wrote this name."""
    if is_token(name):
        return False
    return by_function(name) is not None or counted(name) is not None or listed(name) is not None


def by_function(name: str) -> str | None:
    """§23.14: what a step does that a function tells, empty where that is not known."""
    found = re.fullmatch(r"engine step by function\[(prefill|decode|)\]", name)
    return found[1] if found else None


def is_token(name: str) -> bool:
    """§23.8: whether it is our own annotation of a call of the model in `generate`."""
    return name.startswith("token[") and listed(name) is not None


def plus(*parts: int | None) -> int | None:
    """The sum, None where a part is not known."""
    return None if None in parts else sum(part for part in parts if part is not None)


def counted(name: str) -> dict[str, int | None] | None:
    """§23.2: names that count two groups of requests; None for others."""
    group = rf"\((?:sq)?{N}(?:sk{N}(?:sqsq{N}sqsk{N})?)?[^)]*\)"
    vllm = re.fullmatch(
        rf"execute_(?:[0-9]+_)?context_{N}{group}_generation_{N}{group}", name, re.DOTALL
    )
    before = re.fullmatch(rf"execute_new_{N}_cached_{N}", name)
    tensorrt = re.fullmatch(
        rf"(?:\[Executor\] )?_forward_step [0-9]+: {N} ctx reqs, (?:{N} ctx tokens, )?{N} gen reqs",
        name,
    )
    said_pairs = None
    if vllm:
        reads, reading, seen, *of_prompts, makes, making, looked, again, by_keys = numbers(vllm)
        context = plus(seen, looked)
        said_pairs = plus(pairs(reading, *of_prompts), pairs(making, again, by_keys))
    elif before:
        (reads, makes), (reading, making, context) = numbers(before), (None,) * 3
    elif tensorrt:
        (reads, reading, makes), context = numbers(tensorrt), None
        making = makes
    else:
        return None
    return {
        "requests": plus(reads, makes),
        "prefill_requests": reads,
        "decode_requests": makes,
        "tokens": plus(reading, making),
        "prefill_tokens": reading,
        "decode_tokens": making,
        "context_tokens": context,
        "query_key_pairs": said_pairs,
        "padded_requests": None,
    }


def pairs(queries: int | None, squared: int | None, by_keys: int | None) -> int | None:
    """§23.2: k q - (q q - q) / 2 together, of q queries at the end of k keys."""
    if queries is None or squared is None or by_keys is None:
        return None
    return by_keys - (squared - queries) // 2 if by_keys >= squared >= queries else None


def numbers(found: re.Match[str]) -> list[int | None]:
    """The groups of a match."""
    return [None if group is None else int(group) for group in found.groups()]


def listed(name: str) -> dict[str, int | None] | None:
    """§23.2: names that list numbers by key; None for others."""
    modes = "EXTEND|SPLIT_PREFILL|MIXED|DECODE|TARGET_VERIFY"
    sglang = re.fullmatch(rf"step\[({modes}) bs={N}()((?: [^\]]*)?)\]", name, re.DOTALL)
    atom = re.fullmatch(rf"(prefill|decode|eager_decode)\[bs={N}(?:/{N})?((?: [^\n]*)?)\]", name)
    ours = re.fullmatch(rf"token\[(prefill|decode) bs={N}()( tok={N})\]", name)
    found = sglang or atom or ours
    if not found:
        return None
    mode, size, rest = found[1], int(found[2]), found[4]
    room: str | None = found[3]

    def said(key: str) -> int | None:
        values = re.findall(rf"(?<= ){key}={N}(?=[ \]])", f"{rest}]")
        return int(values[-1]) if values else None

    tokens = said("toks") if said("toks") is not None else said("tok")
    row: dict[str, int | None] = {
        "requests": size,
        "padded_requests": int(room) if room else None,
        "context_tokens": said("sk"),
    }
    of_prompts, of_others = (
        pairs(said(f"{key}_sq"), said(f"{key}_sqsq"), said(f"{key}_sqsk")) for key in "cg"
    )
    if mode == "MIXED":
        said_pairs = plus(of_prompts, of_others)
        row |= {"prefill_requests": said("c"), "decode_requests": said("g")}
        row |= {"prefill_tokens": said("c_sq"), "decode_tokens": said("g_sq")}
        together = plus(said("c_sq"), said("g_sq"))
        row["tokens"] = tokens if tokens is not None else together
        context = plus(said("c_sk"), said("g_sk"))
    elif mode in ("EXTEND", "SPLIT_PREFILL", "prefill"):
        read = said("c_sq") if said("c_sq") is not None else tokens
        row |= {"prefill_requests": size, "decode_requests": 0}
        row |= {"prefill_tokens": read, "decode_tokens": 0, "tokens": read}
        context, said_pairs = said("c_sk"), of_prompts
    else:
        made = said("g_sq") if said("g_sq") is not None else tokens
        if made is None and mode != "TARGET_VERIFY":
            made = size
        row |= {"prefill_requests": 0, "decode_requests": size}
        row |= {"prefill_tokens": 0, "decode_tokens": made, "tokens": made}
        context, said_pairs = said("g_sk"), of_others
        if atom and said("p"):
            row |= {"prefill_requests": said("p"), "decode_requests": said("d")}
            row |= {"prefill_tokens": None, "decode_tokens": None, "tokens": tokens}
    in_all = pairs(tokens, said("sqsq"), said("sqsk"))
    row["query_key_pairs"] = in_all if said_pairs is None else said_pairs
    if row["context_tokens"] is None:
        row["context_tokens"] = contexts(f"{rest}]") if context is None else context
    return row


def contexts(rest: str) -> int | None:
    """§23.2: the sum of a whole list of contexts, one for each request."""
    n = "[0-9]{1,12}"
    found = re.findall(rf"(?<= )ctx=({n}|\[{n}(?:, {n})*\])(?=[ \]])", rest)
    return sum(int(one) for one in re.findall(n, found[-1])) if found else None


def engine_numbers(name: str) -> dict[str, Any]:
    """§23.2: what the name of a step says."""
    row: dict[str, Any] = counted(name) or listed(name) or dict.fromkeys(NUMBERS)
    reads, makes = row["prefill_requests"], row["decode_requests"]
    one_each = reads == 0 and row["requests"] is not None and row["tokens"] == row["requests"]
    if row["query_key_pairs"] is None and one_each:
        row["query_key_pairs"] = row["context_tokens"]
    unknown = reads is None and (row["requests"] or 0) > 0
    row["kind"] = None
    if unknown or (reads or 0) > 0 < (makes or 0):
        row["kind"] = "mixed"
    elif (reads or 0) > 0:
        row["kind"] = "prefill"
    elif (makes or 0) > 0:
        row["kind"] = "decode"
    else:
        row["kind"] = by_function(name) or None
    return row
