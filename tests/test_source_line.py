"""A line of a program as reports spell it."""

import pytest

from nsysflow.source_line import SourceLine


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
