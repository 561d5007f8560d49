"""The messages of NCCL's ranges: size and communicator, or nothing usable."""

import json

import pytest

from nsysflow.analysis.load.nsys_export.messages import sent, slim_payload

REAL = (
    '{"NCCL communicator ID":15653356006786056834,"Message size [bytes]":33554432,'
    '"Reduction operation":"Sum"}'
)
"""A payload as nsys 2025.3 exports it with --include-json=true."""


def test_a_real_payload_has_size_and_communicator() -> None:
    assert sent(REAL) == (33_554_432, 15_653_356_006_786_056_834)


def test_a_slim_payload_has_only_size_and_communicator() -> None:
    slim = slim_payload(REAL)
    assert slim is not None
    assert sent(slim) == sent(REAL)
    assert set(json.loads(slim)) == {"NCCL communicator ID", "Message size [bytes]"}
    assert slim_payload(slim) == slim


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '"Message size [bytes]"',
        "[" * 100_000,
        '{"No. of ranks":2,"Rank":0}',
        '{"Message size [bytes]":"33"}',
        '{"Message size [bytes]":-1}',
        '{"Message size [bytes]":9223372036854775808}',
        '{"Message size [bytes]":true}',
    ],
)
def test_a_payload_without_a_usable_size_is_left_out(text: str) -> None:
    assert sent(text)[0] is None
    assert slim_payload(text) is None
