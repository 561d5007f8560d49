"""Which operator launched what, on random spans."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.load import load
from tests.analysis.load.kineto.traces import PID, event, kernel, write
from tests.oracle.running import Span, innermost

OPERATORS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.booleans(), st.booleans()), max_size=7
)
"""Start, length, whether shapes were recorded, and whether it is on the other thread."""
LAUNCHES = st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=5)


@settings(max_examples=100, deadline=None)
@given(OPERATORS, LAUNCHES)
def test_a_launch_is_of_the_innermost_operator_with_shapes(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int, bool, bool]],
    launched: list[tuple[int, bool]],
) -> None:
    rows: list[dict[str, Any]] = [event("user_annotation", "r")]
    spans: dict[bool, list[Span]] = {False: [], True: []}
    for row, (start, length, shaped, other) in enumerate(drawn):
        args: dict[str, Any] = {"Input Dims": [[row]]} if shaped else {}
        rows.append(event("cpu_op", f"op{row}", start, length, tid=PID + other, args=args))
        if shaped:
            spans[other].append(Span(start, start + length, is_operator=True, row=row, name=""))
    expected = {}
    for number, (at, other) in enumerate(launched, 1):
        args = {"correlation": number}
        rows.append(event("cuda_runtime", "cudaLaunchKernel", at, 1, tid=PID + other, args=args))
        rows.append(kernel(correlation=number))
        if (inside := innermost(spans[other], at)) is not None:
            expected[number] = f"op{inside.row}"
    trace = load(write(tmp_path_factory.mktemp("t"), *rows))
    names = trace.operator_shapes["name"]
    links = trace.operators.select("correlation", "shape").rows()
    assert {correlation: names[shape] for correlation, shape in links} == expected
