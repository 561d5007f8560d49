"""One name for ranges that differ only in an id or in the number of a step (spec §7.6, §7.7)."""

from functools import lru_cache
from typing import Final

import polars as pl

from nsysflow.analysis.engine_names import ENGINE_FORMS, TOKEN, TOKEN_FORM
from nsysflow.analysis.events.activity import SERIAL_NUMBERS
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.load.private_names import LEAST_DIGITS, LONG_WORD, UUID
from nsysflow.analysis.phases.engine_steps import ENGINE_STEP
from nsysflow.base.names import NAMELESS

LOADS_DATA: Final = (
    r"(?i)(?:^|/)(?:[^/]*dataload[^/]*|[^/]*__next__[^/]*|next"
    r"|(?:(?:get|next|load|fetch|read|prepare|wait)[_ -]?)?(?:for[_ -]?)?"
    r"(?:data|batch|batches|inputs?|samples?|examples?)"
    r"|(?:(?:data|batch|input)[_ -]?)?(?:load|loader|loading|fetch|fetching|reading|wait|pipeline)"
    r"|(?:prefetch|collate|tokeni[sz]|preprocess|augment)[^/]*)(?:/|$)"
)
"""Matches paths with a range that loads data, by its name."""

SAVES_STATE: Final = r"(?i)(?:^|/)(?:(?:write|make)[_ -]?)?(?:save|checkpoint)[^/]*$"
"""Matches paths that end with a range which writes a checkpoint, by its name."""

_TIMES: Final = (
    *("step", "timestep", "iter", "iteration", "epoch", "batch", "minibatch", "microbatch"),
    *("micro", "ubatch", "episode", "rollout", "update", "round", "cycle", "request", "frame"),
    *("token", "chunk", "rep", "repeat", "repetition", "trial", "run", "loop", "warmup", "mb"),
    *("prefetch", "prefill", "decode", "generate"),
)
"""Words whose number says when."""

_SIZES: Final = ("bs", "batchsize", "size", "len", "length", "seqlen", "tok", "count", "byte")
"""Words whose number says how much."""

_UNITS: Final = ("req", "request", "tok", "token", "seq", "sample", "row", "byte", "element")
"""Words whose number stands before them and says how much: `3 gen reqs`."""

_PLACES: Final = (
    *("layer", "stage", "rank", "device", "gpu", "node", "worker", "block", "expert", "head"),
    *("bucket", "shard", "group", "stream", "level", "branch", "part", "slot", "tp", "pp", "dp"),
    *("ep", "cp"),
)
"""Words whose number says where."""


def _ending_in(words: tuple[str, ...]) -> str:
    """The pattern of one of these words, alone or last in a name, in camel case too."""
    inside = "|".join(word.capitalize() for word in words)
    return rf"(?:(?:^|[^\p{{L}}])(?i:{'|'.join(words)})|\p{{Ll}}(?:{inside}))s?"


_SAID: Final = r"(?:[ _-]+(?i:id|idx|index|no|nr|number)\.?|Id|Idx|Index|No|Nr|Number)?"
_NUMBER: Final = r"[0-9]+(?:[./][0-9]+)*"
_SPAN: Final = rf"[(\[]{_NUMBER}(?:, ?{_NUMBER})*[)\]]"
_END: Final = r"[^\p{L}\p{N}./]|[./][^\p{N}]|[./]?$"
"""What may follow a number: `conv2d` and `1e5` hold none."""

_ARGUMENT: Final = r"(?:\w+ ?[=:] ?)?[0-9][0-9.]*"

_KEPT: Final = "\ue001"
"""Stands before a number that says where. Like `_HOLES` of the private use area, so in no name."""

_PLACE: Final = rf"({_ending_in(_PLACES)}{_SAID}[ _:#=(\[-]*)([0-9])"

_UNIT: Final = f"(?i:{'|'.join(_UNITS)})"

_PATTERNS: Final = (
    # sizes in the argument list of a C++ function: `ivf::search(k = 10)`, `cagra::build(1000, 96)`
    rf"(::[\w<>:]+)( ?\({_ARGUMENT}(?: ?[,*x] ?{_ARGUMENT})*\))()",
    rf"({_ending_in(_TIMES + _SIZES)})({_SAID}[ _:#=-]*(?:{_SPAN}|{_NUMBER}))({_END})",
    rf"(^|[^\p{{L}}\p{{N}}./{_KEPT}])({_NUMBER} )((?:\p{{L}}+ )?{_UNIT}s?(?:[^\p{{L}}]|$))",
)
"""Where a number stands that says when or how much: the second group, between the others."""

_MOST: Final = 3
"""So many numbers are looked for with each pattern."""

_HOLES: Final = tuple(chr(0xE010 + hole) for hole in range(_MOST * len(_PATTERNS)))
"""Stand where numbers stood."""


def without_numbers(name: str) -> str:
    """A name without all numbers that say when or how much."""
    forms = _forms(pl.Series("name", [name]))
    return str(forms["form"].str.replace_all(f"[{''.join(_HOLES)}{_KEPT}]", "").item())


def merge_names(names: pl.Series) -> pl.Series:
    """Distinct names. A number is removed if otherwise equal names differ in it."""
    if not names.str.contains("[0-9]").any():  # as in most programs
        return names.str.strip_chars_end()
    forms = _forms(names)
    for hole in _HOLES:
        differs = pl.col(hole).n_unique().over("form") > 1
        number = pl.when(~differs).then(hole).otherwise(pl.lit("")).fill_null("")
        forms = forms.with_columns(number.alias(hole))
    name = pl.col("form")
    for hole in _HOLES:
        name = name.str.replace(hole, pl.col(hole), literal=True)
    return forms.select(name.str.replace_all(_KEPT, "").str.strip_chars_end()).to_series()


def _forms(names: pl.Series) -> pl.DataFrame:
    """Per name its `form`, with holes where numbers stood, and by hole what stood there."""
    forms = names.to_frame("form")
    for _ in range(2):  # `rank0layer1`: the letter before a word belongs to the match before
        forms = forms.with_columns(pl.col("form").str.replace_all(_PLACE, f"${{1}}{_KEPT}${{2}}"))
    for number, hole in enumerate(_HOLES):
        pattern = _PATTERNS[number // _MOST]
        captured = pl.col("form").str.extract(pattern, 2).alias(hole)
        forms = forms.with_columns(
            captured, pl.col("form").str.replace(pattern, f"${{1}}{hole}${{3}}")
        )
    return forms


_EMITTED: Final = r"(?s), seq =|::.*, (?:op_id|sizes|input_op_ids) ="
"""Autograd's sequence number, or C++ namespaces and a number. `emit_nvtx` also adds an `op_id` to
the program's own `record_function`."""

_THUNK: Final = r"(?s)^Thunk:#.*#$"
"""One operation of XLA."""

_COLLECTIVE: Final = "^nccl:"
"""torch.distributed opens such a range around each collective."""

_PROFILER_STEP: Final = "ProfilerStep"
"""The range that torch.profiler opens around each step, numbered."""

STEPS_OF_FRAMEWORKS: Final = (ENGINE_STEP, _PROFILER_STEP)
"""The names of ranges that frameworks open around what they call a step."""

_NAME_PATTERNS: Final = (
    (r"(?s)^(\w+):#(?:.*,)?hlo_module=([^,#]*).*#$", "${1} ${2}"),  # XLA: a compiled function
    (r"(?s)^(\w+):#.*=.*#$", "${1}"),  # XLA: the rest
    (r"(?s)^\{'Module': '([^']*)'.*\}$", "${1}"),  # vLLM and SGLang: a layer
    (r"(?s)\{[^{}]*:[^{}]*\}", ""),  # Lightning: the settings of a callback
    (r"^\[pl\]\[(?:profile|module)\]", ""),  # Lightning
    *((form, ENGINE_STEP) for form in ENGINE_FORMS),
    (TOKEN_FORM, TOKEN),
    (r"^step\[([A-Z_]+) bs=[^\]]*\]$", "step[${1}]"),  # SGLang: a step without a forward pass
    (r"^(Torch-Compiled Region: (?:![0-9]+/)?[0-9]+)/[0-9_]+$", "${1}"),  # Dynamo: recompiled
    (rf"^({_PROFILER_STEP})#[0-9]+$", "${1}"),
    (r"^(Forward|Backward) [0-9]+$", "${1}"),  # torch.distributed.pipelining: a microbatch
    (r"(?s)^## (.+) ##$", "${1}"),  # Inductor
)
"""What is replaced by what, in this order."""

_ID: Final = "\ue000"
"""Stands where an id stood; of Unicode's private use area, so in no name."""

_JOINED: Final = rf"(?: at|[ _:#=@/-])*(?:\({_ID}\)|\[{_ID}\]|<{_ID}>|{_ID})"
"""An id, its own brackets, and what joins it to the name."""


def is_operator(raw: pl.Expr) -> pl.Expr:
    """Whether PyTorch or XLA opened a range of this raw name around one operator or collective."""
    return raw.str.contains(f"{_EMITTED}|{_THUNK}|{_COLLECTIVE}")


def plain_names(names: pl.Series) -> pl.Series:
    """Names without what frameworks add to them: program numbers, settings, ids."""
    for form, name in _NAME_PATTERNS:
        names = names.str.replace_all(form, name)
    return _without_ids(names)


def _without_ids(names: pl.Series) -> pl.Series:
    """Names without UUIDs, addresses and hashes."""
    words = names.str.replace_all(UUID, _ID).str.extract_all(r"[\p{L}\p{N}]+|[^\p{L}\p{N}]+")
    word = pl.element()
    is_id = word.str.contains(f"^{LONG_WORD}$") & (word.str.count_matches("[0-9]") >= LEAST_DIGITS)
    marked = words.list.eval(pl.when(is_id).then(pl.lit(_ID)).otherwise(word)).list.join("")
    return marked.str.replace_all(_JOINED, "")


def group_names(raw: pl.Series) -> pl.Series:
    """Raw names of ranges, normalised: equal operators and all steps get one name.

    Only distinct names are looked at; without serial numbers a report has few of them. A name of
    which nothing would be left stays as it is; without any, it is `(nameless)`.
    """
    bare = raw.str.replace(SERIAL_NUMBERS, "").replace("", NAMELESS)
    changed = _changed(tuple(bare.unique().sort()))
    return bare if changed.is_empty() else bare.replace(changed["bare"], changed["name"])


@lru_cache(maxsize=2)  # the ranks of a run have the same names, as a rule
def _changed(names: tuple[str, ...]) -> pl.DataFrame:
    """Distinct names that change: `bare`, and the `name` that each gets."""
    distinct = pl.Series("bare", names, dtype=pl.String)
    plain = plain_names(distinct)
    forms = plain.unique()
    name = plain.replace(forms, merge_names(forms)).alias("name")
    return pl.DataFrame([distinct, name]).filter(
        pl.col("name") != pl.col("bare"), pl.col("name") != ""
    )


_COMPILING: Final = r"(?s)^compile$|^Xla\w+:#.*#$|\(dynamo_timed\)$"
"""Ours, any of XLA's but `XlaModule`, and those of PyTorch's Dynamo."""

_TUNING: Final = r"(?s)^XlaModule:#.*#$"
"""While it compiles, XLA tries variants of a kernel as modules without a number of a program."""


def is_compiling(raw: pl.Expr) -> pl.Expr:
    """Whether a range of this raw name is opened to compile."""
    return raw.str.contains(_COMPILING) & ~raw.str.starts_with("XlaModule:")


def outside_compiling(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges that are no part of a compiling one, which opens thousands, on threads of its own
    too.

    Args:
        ranges: in stack order, with their raw `name`, `start` and `end` on the thread axis, and
            `compiling`.
    """
    if not ranges["compiling"].any():
        return ranges
    ranges = ranges.with_row_index("at")
    parts = pl.col("at").is_in(_parts(ranges).implode())
    pushed = pl.col("kind") == "push_pop"
    opens = pushed & (pl.col("compiling") | parts)
    reached = reached_before(pl.when(opens).then("end").otherwise(pl.lit(-1)))
    inside = pushed & (pl.col("start") < reached).fill_null(value=False)
    return ranges.filter(~inside & ~parts).drop("at")


def _parts(ranges: pl.DataFrame) -> pl.Series:
    """The ranges (`at`) around compiling or tuning that start while their process compiles."""
    tuning = pl.col("name").str.contains(_TUNING)
    tuning &= ~pl.col("name").str.contains("program_id=", literal=True)
    rows = ranges.filter(pl.col("kind") == "push_pop", pl.col("compiling") | tuning)
    rows = rows.sort("process", "start_ns", -pl.col("end_ns"), "row")
    reached = pl.when("compiling").then("end_ns").cum_max().forward_fill().shift(1).over("process")
    return rows.filter((pl.col("start_ns") < reached).fill_null(value=False))["at"]
