import pytest

from nsysflow.base.errors import near_or_all
from nsysflow.base.names import SourceLine, has_rank, without_rank

RANGES = ["step", "data", "forward", "backward", "optimizer", "grad_clip"]


@pytest.mark.parametrize(
    ("typed", "known", "said"),
    [
        ("fwd", RANGES, "Did you mean forward? There are 5 more; --table phases shows all"),
        ("xyz", ["a", "b"], "There are: a, b"),
        ("x", [*"123456789"], "There are: 1, 2, 3, 4, 5, 6, 7, 8. There is 1 more; --table phases"),
        ("xyz", [], ""),
    ],
)
def test_the_answer_is_the_nearest_name_or_first(typed: str, known: list[str], said: str) -> None:
    assert near_or_all(typed, known, where="--table phases").startswith(said)


@pytest.mark.parametrize(
    ("name", "common"),
    [("ddp-rank0", "ddp"), ("run_rank_12.sqlite", "run.sqlite"), ("Rank3-a", "-a")],
)
def test_ranks_of_a_run_have_a_name_in_common(name: str, common: str) -> None:
    assert has_rank(name)
    assert without_rank(name) == common


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train.py:42 in step", SourceLine("train.py", 42, "step")),
        ("pkg/train.py:42", SourceLine("pkg/train.py", 42, "")),
        ("a.py:7 in f in g", SourceLine("a.py", 7, "f in g")),
        ("train.py", None),
        ("", None),
    ],
)
def test_a_line_is_a_file_a_number_and_a_function(text: str, line: SourceLine | None) -> None:
    assert SourceLine.of(text) == line
