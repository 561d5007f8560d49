"""Which numbers in range names are removed, and which stay (spec §7.7)."""

from typing import Final

import polars as pl

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


def merged(names: pl.Series) -> pl.Series:
    """Distinct names. A number is removed if otherwise equal names differ in it."""
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
        found = pl.col("form").str.extract(pattern, 2).alias(hole)
        forms = forms.with_columns(
            found, pl.col("form").str.replace(pattern, f"${{1}}{hole}${{3}}")
        )
    return forms
