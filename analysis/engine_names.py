"""The numbers that serving engines write into the names of their steps (spec §23.2).

vLLM, SGLang, TensorRT-LLM and ATOM open a range around each step:
`execute_context_2(6144)_generation_3(3)` prefills 6144 tokens of two requests and decodes one token
of each of three others.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import polars as pl

KIND: Final = pl.Enum(["prefill", "mixed", "decode"])
"""What a step does: it reads prompts, both, or it makes one token more of each request."""

ENGINE_NUMBERS: Final = pl.Schema(
    {
        "kind": KIND,
        "requests": pl.Int64(),
        "prefill_requests": pl.Int64(),
        "decode_requests": pl.Int64(),
        "tokens": pl.Int64(),
        "prefill_tokens": pl.Int64(),
        "decode_tokens": pl.Int64(),
        "context_tokens": pl.Int64(),
        "query_key_pairs": pl.Int64(),
        "padded_requests": pl.Int64(),
    }
)
"""What the name of a step says: how many requests and tokens it has, how many tokens its attention
looks at, how many pairs of a query and a key that is not after it, and for how many requests it has
room (a CUDA graph's size). What a name does not say is null; the kind is null where a step has no
requests."""
EngineNumbers = Annotated[pl.DataFrame, ENGINE_NUMBERS]

_N: Final = "([0-9]{1,12})"
_GROUP: Final = rf"\((?:sq)?{_N}(?:sk{_N}(?:sqsq{_N}sqsk{_N})?)?[^)]*\)"
ENGINE_FORMS: Final = (
    # vLLM: requests and tokens of prompts, then those that generate
    rf"^execute_(?:[0-9]+_)?context_{_N}{_GROUP}_generation_{_N}{_GROUP}$",
    rf"^execute_new_{_N}_cached_{_N}$",  # vLLM before 0.10
    r"^(?:\[Executor\] )?_forward_step [0-9]+:"  # TensorRT-LLM
    rf" {_N} ctx reqs, (?:{_N} ctx tokens, )?{_N} gen reqs$",
    rf"^step\[(EXTEND|SPLIT_PREFILL|MIXED|DECODE|TARGET_VERIFY) bs={_N}(?: [^\]]*)?\]$",  # SGLang
    rf"^(prefill|decode|eager_decode)\[bs={_N}(?:/{_N})?(?: .*)?\]$",  # ATOM
    r"^engine step by function\[(prefill|decode)?\]$",  # ours, where no range names a step
)
"""How these names are written."""

_VLLM, _VLLM_BEFORE, _TENSORRT, _SGLANG, _ATOM, _FUNCTION = ENGINE_FORMS


def frame_step(mode: str) -> str:
    """The name of a step that a function tells, which prefills, decodes, or neither is known."""
    return f"engine step by function[{mode}]"


TOKEN: Final = "token"
TOKEN_FORM: Final = rf"^token\[(prefill|decode) bs={_N} tok={_N}\]$"
"""Our own annotation of one call of the model in `generate`, which is called `TOKEN`."""

_FORMS: Final = (*ENGINE_FORMS, TOKEN_FORM)

_SAID: Final = r"(?s)^(?:step|prefill|decode|eager_decode|token)\[.* {key}=([0-9]{{1,12}})[ \]]"
"""What follows a key in a list."""

_READS_PROMPTS: Final = ("EXTEND", "SPLIT_PREFILL", "prefill")
_ONE_TOKEN_EACH: Final = ("DECODE", "decode", "eager_decode")
"""Unless the name says how many."""


def engine_numbers(raw: pl.Series) -> EngineNumbers:
    """The numbers in raw names of ranges, row by row; all null where no engine wrote a name."""
    if raw.is_empty():
        return ENGINE_NUMBERS.to_frame()
    names = raw.alias("name").cast(pl.String).to_frame()
    distinct = names.unique()
    known = distinct.hstack(_numbers_of(distinct).get_columns())
    rows = names.join(known, on="name", how="left", nulls_equal=True, maintain_order="left")
    return rows.drop("name")


def _numbers_of(names: pl.DataFrame) -> EngineNumbers:
    """The same of a column `name`."""
    names = _split(names)
    forms = [_counted(names), _listed(names)]
    columns = [pl.coalesce(form[name] for form in forms) for name in _COUNTED]
    said_kind = names.select(_text(_FUNCTION, 1).alias("said_kind"))
    numbers = pl.select(*columns, said_kind.to_series()).with_columns(
        pl.coalesce("said_tokens", pl.col("prefill_tokens") + pl.col("decode_tokens")).alias(
            "tokens"
        ),
        pl.coalesce("said_requests", pl.col("prefill_requests") + pl.col("decode_requests")).alias(
            "requests"
        ),
    )
    one_each = (pl.col("prefill_requests") == 0) & (pl.col("tokens") == pl.col("requests"))
    pairs = pl.coalesce("said_pairs", pl.when(one_each).then("context_tokens"))
    return numbers.with_columns(
        _kind().alias("kind"), pairs.alias("query_key_pairs")
    ).match_to_schema(ENGINE_NUMBERS, extra_columns="ignore")


_COUNTED: Final = (
    *("prefill_requests", "decode_requests", "prefill_tokens", "decode_tokens"),
    *("context_tokens", "padded_requests", "said_requests", "said_tokens", "said_pairs"),
)
"""What is read out of a name, before what follows from that."""


def _kind() -> pl.Expr:
    prompts, generates = pl.col("prefill_requests") > 0, pl.col("decode_requests") > 0
    unknown = pl.col("prefill_requests").is_null() & (pl.col("requests") > 0)
    return (
        pl.when(unknown | (prompts & generates))
        .then(pl.lit("mixed"))
        .when(prompts)
        .then(pl.lit("prefill"))
        .when(generates)
        .then(pl.lit("decode"))
        .otherwise(pl.col("said_kind"))
        .cast(KIND)
    )


def _split(names: pl.DataFrame) -> pl.DataFrame:
    """The names, once through each pattern, which takes 1 ms to compile: `name`, the groups of each
    form, and what each key says."""
    name = pl.col("name")
    groups = (name.str.extract_groups(form).alias(str(_FORMS.index(form))) for form in _FORMS)
    said = (name.str.extract(_SAID.format(key=key)).cast(pl.Int64).alias(key) for key in _KEYS)
    return names.with_columns(*groups, *said)


def _text(form: str, group: int) -> pl.Expr:
    """A group of a form."""
    return pl.col(str(_FORMS.index(form))).struct.field(str(group))


def _number(form: str, group: int) -> pl.Expr:
    """A group of a form as a whole number."""
    return _text(form, group).cast(pl.Int64)


def _counted(names: pl.DataFrame) -> pl.DataFrame:
    """The numbers in names that count requests of prompts and others one after the other."""
    prompts, others = ([_number(_VLLM, first + at) for at in range(4)] for first in (2, 7))
    return names.select(
        pl.coalesce(_number(form, 1) for form in (_VLLM, _VLLM_BEFORE, _TENSORRT)).alias(
            "prefill_requests"
        ),
        pl.coalesce(_number(_VLLM, 6), _number(_VLLM_BEFORE, 2), _number(_TENSORRT, 3)).alias(
            "decode_requests"
        ),
        pl.coalesce(prompts[0], _number(_TENSORRT, 2)).alias("prefill_tokens"),
        pl.coalesce(others[0], _number(_TENSORRT, 3)).alias("decode_tokens"),
        (prompts[1] + others[1]).alias("context_tokens"),
        (_pairs(prompts[0], *prompts[2:]) + _pairs(others[0], *others[2:])).alias("said_pairs"),
        *_unknown(("padded_requests", "said_requests", "said_tokens")),
    )


def _pairs(queries: pl.Expr, squared: pl.Expr, by_keys: pl.Expr) -> pl.Expr:
    """The pairs of a query and a key that is not after it, by the sums over requests of queries, of
    their square and of queries times keys; null where these cannot be."""
    return pl.when(by_keys >= squared, squared >= queries).then(by_keys - (squared - queries) // 2)


def _unknown(columns: Iterable[str]) -> list[pl.Expr]:
    return [pl.lit(None, pl.Int64).alias(name) for name in columns]


def _listed(names: pl.DataFrame) -> pl.DataFrame:
    """The numbers in names that list them by key: `bs=2 toks=96`."""
    said = {key: pl.col(key) for key in _KEYS}
    tokens = pl.coalesce("toks", "tok")
    forms = (_SGLANG, _ATOM, TOKEN_FORM)
    mode = pl.coalesce(_text(form, 1) for form in forms)
    size = pl.coalesce(_number(form, 2) for form in forms)
    mixed, prompts = mode == "MIXED", mode.is_in(_READS_PROMPTS)
    one_each = pl.when(mode.is_in(_ONE_TOKEN_EACH)).then(size)
    generated = pl.coalesce(said["g_sq"], tokens, one_each)

    def by_mode(of_mixed: pl.Expr, of_prompts: pl.Expr, of_others: pl.Expr) -> pl.Expr:
        """Null where the name has no mode."""
        cases = pl.when(mixed).then(of_mixed).when(prompts).then(of_prompts)
        return cases.when(mode.is_not_null()).then(of_others)

    none = pl.lit(0, pl.Int64)
    in_all = pl.coalesce(
        said["sk"],
        by_mode(said["c_sk"] + said["g_sk"], said["c_sk"], said["g_sk"]),
        _contexts(),
    )
    alone = _text(_ATOM, 1).is_null() | (said["p"].fill_null(0) == 0)
    of_prompts, of_others = (
        _pairs(said[f"{key}_sq"], said[f"{key}_sqsq"], said[f"{key}_sqsk"]) for key in "cg"
    )
    pairs = pl.coalesce(
        by_mode(of_prompts + of_others, of_prompts, of_others),
        _pairs(tokens, said["sqsq"], said["sqsk"]),
    )
    return names.select(
        by_mode(said["c"], size, pl.when(alone).then(none).otherwise(said["p"])).alias(
            "prefill_requests"
        ),
        by_mode(said["g"], none, pl.when(alone).then(size).otherwise(said["d"])).alias(
            "decode_requests"
        ),
        by_mode(said["c_sq"], pl.coalesce(said["c_sq"], tokens), pl.when(alone).then(none)).alias(
            "prefill_tokens"
        ),
        by_mode(said["g_sq"], none, pl.when(alone).then(generated)).alias("decode_tokens"),
        pl.when(mode.is_not_null()).then(in_all).alias("context_tokens"),
        _number(_ATOM, 3).alias("padded_requests"),
        size.alias("said_requests"),
        pl.when(mixed | ~alone).then(tokens).alias("said_tokens"),
        pl.when(mode.is_not_null()).then(pairs).alias("said_pairs"),
    )


_KEYS: Final = (
    *("c", "g", "p", "d", "sk", "sqsq", "sqsk", "toks", "tok"),
    *(f"{group}_{sums}" for group in "cg" for sums in ("sq", "sk", "sqsq", "sqsk")),
)


def _contexts() -> pl.Expr:
    """The sum of a whole list of contexts, one for each request."""
    number = "[0-9]{1,12}"
    whole = rf"(?s)^\w+\[.* ctx=({number}|\[{number}(?:, {number})*\])[ \]]"
    listed = pl.col("name").str.extract(whole, 1).str.extract_all(number)
    return listed.list.eval(pl.element().cast(pl.Int64)).list.sum()
