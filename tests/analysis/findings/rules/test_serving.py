"""The finding that a serving engine prepares a step only when the one before it is done."""

import pytest

import nsysflow
from tests.analysis.replay.test_overlapped import Engine, step_us
from tests.oracle.model import to_trace
from tests.tiny import AS_RECORDED, plain_of

SERIAL = "serial-scheduling"


def found(engine: Engine) -> dict[str, int]:
    """The findings and what each saves, in ns."""
    analysis = nsysflow.analyze(to_trace(plain_of(*engine.rows())), AS_RECORDED)
    return {one.finding.rule: one.high_ns for one in analysis.found.valued}


@pytest.mark.parametrize("pageable", [False, True])
def test_serial_scheduling_is_the_finding_and_no_wait_for_tokens_is_another(pageable: bool) -> None:
    valued = found(Engine(pageable=pageable))
    assert next(iter(valued)) == SERIAL
    saved_us = step_us(Engine(pageable=pageable)) - step_us(Engine(ahead=True))
    assert valued[SERIAL] / 1_000 == pytest.approx(saved_us, rel=0.05)
    assert not {"sync-in-loop", "scalar-readback", "host-round-trip"} & {*valued}


def test_overlapped_scheduling_has_no_such_finding() -> None:
    assert SERIAL not in found(Engine(ahead=True))
