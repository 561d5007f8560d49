"""Names of ranges: without serial numbers and ids, and without numbers that count (spec §7)."""

import re
from collections import defaultdict
from collections.abc import Iterable

from tests.oracle.engine_names import ENGINE_STEP, is_engine_step, is_token

TIMES = {
    *("step", "timestep", "iter", "iteration", "epoch", "batch", "minibatch", "microbatch"),
    *("micro", "ubatch", "episode", "rollout", "update", "round", "cycle", "request", "frame"),
    *("token", "chunk", "rep", "repeat", "repetition", "trial", "run", "loop", "warmup", "mb"),
    *("prefetch", "prefill", "decode", "generate"),
}
SIZES = {"bs", "batchsize", "size", "len", "length", "seqlen", "tok", "count", "byte"}
UNITS = {"req", "request", "tok", "token", "seq", "sample", "row", "byte", "element"}
PLACES = {
    *("layer", "stage", "rank", "device", "gpu", "node", "worker", "block", "expert", "head"),
    *("bucket", "shard", "group", "stream", "level", "branch", "part", "slot", "tp", "pp", "dp"),
    *("ep", "cp"),
}
TAILS = (", seq =", ", op_id =", ", sizes =", ", input_op_ids =")
XLA = re.compile(r"(\w+):#(.*)#", re.DOTALL | re.ASCII)
NUMBER = r"[0-9]+(?:[./][0-9]+)*"
MOST = 3


def range_name(name: str) -> str:
    """§7.6: everything from `, seq =` or one of the others on is dropped."""
    for tail in TAILS:
        name = name.split(tail, 1)[0]
    return name


def is_operator(name: str) -> bool:
    """§7.6: whether the raw name is that of an operator."""
    emitted = (
        name.startswith("nccl:")
        or ", seq =" in name
        or any("::" in name.rpartition(tail)[0] for tail in TAILS[1:])
    )
    return emitted or (name.startswith("Thunk:#") and name.endswith("#") and len(name) > 7)


def is_compiling(name: str) -> bool:
    """§7.18: `compile`, `… (dynamo_timed)`, or XLA's, but for `XlaModule`."""
    xla = XLA.fullmatch(name)
    of_xla = xla is not None and xla[1].startswith("Xla") and xla[1] not in {"Xla", "XlaModule"}
    return name == "compile" or name.endswith("(dynamo_timed)") or of_xla


def may_be_tuning(name: str) -> bool:
    """§7.18: `XlaModule` without a `program_id`."""
    xla = XLA.fullmatch(name)
    return xla is not None and xla[1] == "XlaModule" and "program_id=" not in name


def framework_form(name: str) -> str:
    """§7.6: what frameworks write around a name is dropped."""
    xla = XLA.fullmatch(name)
    if xla is not None:
        modules = re.findall(r"(?:^|,)hlo_module=([^,#]*)", xla[2])
        if modules:
            name = f"{xla[1]} {modules[-1]}"
        elif "=" in xla[2]:
            name = xla[1]
    layer = re.fullmatch(r"\{'Module': '([^']*)'.*\}", name, re.DOTALL)
    name = layer[1] if layer else name
    name = re.sub(r"\{[^{}]*:[^{}]*\}", "", name)
    for start in ("[pl][profile]", "[pl][module]"):
        if name.startswith(start):
            name = name.removeprefix(start)
            break
    if is_engine_step(name):
        name = ENGINE_STEP
    if is_token(name):
        name = "token"
    forward = re.match(r"step\[([A-Z_]+) bs=[^\]]*\]\Z", name)
    name = f"step[{forward[1]}]" if forward else name
    region = re.match(r"(Torch-Compiled Region: (![0-9]+/)?[0-9]+)/[0-9_]+\Z", name)
    name = region[1] if region else name
    counted = re.match(r"(ProfilerStep(?=#)|(Forward|Backward)(?= ))[ #][0-9]+\Z", name)
    name = counted[1] if counted else name
    if len(name) > len("##  ##") and name.startswith("## ") and name.endswith(" ##"):
        name = name[3:-3]
    return name


def is_id(word: str) -> bool:
    """§7.6: an address or a hash, with at least 2 digits."""
    if len(re.findall("[0-9]", word)) < 2:
        return False
    return any(
        re.fullmatch(form, word) for form in ("0x[0-9a-fA-F]{6,}", "[0-9a-f]{12,}", "[0-9a-z]{32,}")
    )


def without_ids(name: str) -> str:
    """§7.6: ids go, with what joins them to the rest."""
    name = re.sub(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "\0", name)
    words = re.findall(r"[^\W_]+|[\W_]+", name)
    name = "".join("\0" if is_id(word) else word for word in words)
    while "\0" in name:
        before, _, after = name.partition("\0")
        if before[-1:] + after[:1] in {"()", "[]", "<>"}:
            before, after = before[:-1], after[1:]
        while before.endswith(" at") or before[-1:] in set(" _:#=@/-"):
            before = before.removesuffix(" at") if before.endswith(" at") else before[:-1]
        name = before + after
    return name


LETTER = r"[^\W\d_]"


def one_of(known: set[str]) -> str:
    """§7.7: one of these words by itself, or last in camel case; it may be a plural."""
    own, inside = "|".join(known), "|".join(word.capitalize() for word in known)
    return rf"(?:(?<!{LETTER})(?i:{own})|(?<=[a-z])(?:{inside}))s?"


SAID = "|".join(("id", "idx", "index", "no", "nr", "number"))
SAID = rf"(?:[ _-]+(?i:{SAID})\.?|{'|'.join(word.capitalize() for word in SAID.split('|'))})?"
SPAN = rf"[(\[]{NUMBER}(?:, ?{NUMBER})*[)\]]"
ARGUMENT = r"(?:\w+ ?[=:] ?)?[0-9][0-9.]*"
KEPT = "\x01"
WHERE = re.compile(rf"({one_of(PLACES)}{SAID}[ _:#=(\[-]*)([0-9])")
ARGUMENTS = re.compile(rf"::[\w<>:]+(?P<number> ?\({ARGUMENT}(?: ?[,*x] ?{ARGUMENT})*\))")
COUNTED = re.compile(
    rf"({one_of(TIMES | SIZES)})(?P<number>{SAID}[ _:#=-]*(?:{SPAN}|{NUMBER}))"
    r"(?=[^\w./]|_|[./][^\d]|[./]?\Z)"
)
AMOUNT = re.compile(
    rf"(?<![^\W_])(?<![./{KEPT}])(?P<number>{NUMBER} )"
    rf"(?=({LETTER}+ )?(?i:{'|'.join(UNITS)})s?(?!{LETTER}))"
)


def opened(name: str) -> tuple[str, list[str]]:
    """§7.7: a name with holes where numbers say when or how much, and these, three of a kind."""
    name = WHERE.sub(rf"\1{KEPT}\2", name)
    numbers: list[str] = []
    for kind in (ARGUMENTS, COUNTED, AMOUNT):
        for _ in range(MOST):
            found = kind.search(name)
            if found is None:
                break
            start, end = found.span("number")
            name = f"{name[:start]}{chr(0xE000 + len(numbers))}{name[end:]}"
            numbers.append(found.string[start:end])
    return name, numbers


def plain(name: str) -> str:
    """§7.6: a name without serial numbers, and without what frameworks add."""
    return without_ids(framework_form(range_name(name)))


def grouped(names: Iterable[str]) -> dict[str, str]:
    """§7.6, §7.7: the normalised name of each raw name."""
    raw = set(names)
    alike: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for name in raw:
        form, numbers = opened(plain(name))
        alike[form].add(tuple(numbers))
    found = {}
    for name in raw:
        shown, numbers = opened(plain(name))
        others = alike[shown]
        for hole, number in enumerate(numbers):
            differs = len({each[hole] for each in others}) > 1
            shown = shown.replace(chr(0xE000 + hole), "" if differs else number)
        found[name] = shown.replace(KEPT, "").rstrip() or range_name(name) or "(nameless)"
    return found
