"""Scheduling that overlaps with the GPU: what a replay says of it, and what it would be."""

from dataclasses import dataclass

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.apply import Names
from nsysflow.analysis.replay.changes import Changes, with_late_waits, without_calls
from nsysflow.analysis.replay.replay import recorded, replay
from nsysflow.analysis.replay.whatif import whatif
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.errors import UnknownName
from tests.analysis.replay.replays import replayed
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.replay import Replay
from tests.oracle.report import Report
from tests.oracle.serving import token_waits
from tests.tiny import AS_RECORDED, Row, copy, kernel, launch, opened, plain_of

US = 1_000
OVERLAPPED = Changes(overlapped=True)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A decode loop: times in us of the GPU's step, the scheduler, the inputs and launches.

    `ahead` launches a step before it waits for the one before. `pageable` copies the tokens so that
    the copy blocks. `nested`: the wait makes another call that waits.
    """

    gpu: int = 1_000
    schedule: int = 300
    launch: int = 100
    steps: int = 12
    ahead: bool = False
    pageable: bool = False
    nested: bool = False

    def rows(self) -> list[Row]:
        """What a profiler records of it."""
        rows: list[Row] = []
        clock = gpu = 0
        done: list[int] = []
        for number in range(self.steps):
            clock += self.schedule * US
            first = 10 * number
            begun = max(clock + self.launch * US // 2 + 5 * US, gpu + US)
            gpu = begun + self.gpu * US
            end = clock + self.launch * US
            launched = clock + self.launch * US // 2
            rows += [
                opened(clock, end, f"execute_context_0(0)_generation_{number + 1}({number + 1})"),
                launch(launched, end - US, first + 1, name="cudaGraphLaunch"),
                kernel(begun, gpu, first + 1),
            ]
            copied = max(gpu + US, end + 6 * US)
            gpu = copied + 2 * US
            done.append(gpu)
            awaited = done[-2] if self.ahead and number else 0 if self.ahead else gpu
            clock = self._take_tokens(rows, first, end + US, copied, awaited)
        return rows

    def _take_tokens(
        self, rows: list[Row], first: int, clock: int, copied: int, awaited: int
    ) -> int:
        """The copy of the tokens and the wait; returns when the host goes on."""
        memory = "pageable" if self.pageable and not self.ahead else "pinned"
        blocks = memory == "pageable"
        back = max(clock + 4 * US, copied + 3 * US) if blocks else clock + 4 * US
        rows += [
            launch(clock, back, first + 2, name="cudaMemcpyAsync"),
            copy(copied, copied + 2 * US, first + 2, "DtoH", "device", memory),
        ]
        begun = back + US
        ended = max(begun + 2 * US, awaited + 2 * US)
        rows.append(launch(begun, ended, first + 3, name="cudaStreamSynchronize"))
        if self.nested:
            rows.append(launch(begun + 1, ended - 1, first + 4, name="cuStreamSynchronize"))
        return ended


def timeline_of(model: PlainTrace) -> Timeline:
    return nsysflow.analyze(to_trace(model), AS_RECORDED).timeline


def step_us(engine: Engine, changes: Changes | None = None) -> float:
    """The mean step, as recorded or with changes, in us."""
    found = whatif(timeline_of(plain_of(*engine.rows())), changes or Changes())
    assert found.after.step_ns is not None
    return found.after.step_ns / US


@pytest.mark.parametrize("pageable", [False, True])
@pytest.mark.parametrize(("gpu", "schedule"), [(1_000, 300), (1_000, 40), (300, 280), (200, 900)])
def test_a_replay_of_serial_scheduling_takes_what_overlapped_scheduling_takes(
    gpu: int, schedule: int, pageable: bool
) -> None:
    """Whether the GPU or the host takes longer."""
    serial = Engine(gpu=gpu, schedule=schedule, pageable=pageable)
    ahead = Engine(gpu=gpu, schedule=schedule, ahead=True)
    assert step_us(serial) - step_us(ahead) > 30
    assert step_us(serial, OVERLAPPED) == pytest.approx(step_us(ahead), rel=0.02)


def test_where_scheduling_overlaps_already_nothing_changes() -> None:
    ahead = Engine(ahead=True)
    assert step_us(ahead, OVERLAPPED) == pytest.approx(step_us(ahead), rel=0.01)


@pytest.mark.parametrize(
    "engine", [Engine(), Engine(pageable=True), Engine(gpu=200, schedule=900), Engine(nested=True)]
)
def test_the_oracle_agrees(engine: Engine) -> None:
    model = plain_of(*engine.rows())
    timeline = timeline_of(model)
    found = replayed(timeline, OVERLAPPED).ops["end_ns"].to_list()
    assert found == Replay(model).ends_overlapped(token_waits(Report(model)))


def test_waits_that_are_removed_before_stay_removed() -> None:
    timeline = timeline_of(plain_of(*Engine().rows()))
    names = Names(timeline=timeline, recorded=recorded(timeline))
    waits = names.token_waits
    removed = waits["node"].gather_every(3)
    program = with_late_waits(without_calls(names.recorded.program, removed), waits)
    assert program.calls["after"][removed].null_count() == len(removed)
    ended, before = (replay(of).ops["end_ns"][-1] for of in (program, names.recorded.program))
    assert ended < before


def test_a_report_without_an_engine_has_no_such_replay() -> None:
    rows: list[Row] = [opened(0, 9, "step"), launch(1, 2, 1), kernel(3, 5, 1)]
    with pytest.raises(UnknownName, match="no step of a serving engine"):
        whatif(nsysflow.analyze(to_trace(plain_of(*rows)), Options()).timeline, OVERLAPPED)
