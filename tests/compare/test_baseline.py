import json
from pathlib import Path
from typing import Any

import pytest

from nsysflow.base.errors import CheckError, Damaged
from nsysflow.compare.baseline import Known, baseline_json, known_of, ratio, read_baseline
from nsysflow.compare.budgets import figures_of
from nsysflow.compare.captures import Capture
from tests.compare.handmade import capture, ranks, row, track
from tests.compare.test_judging import runs_of

RUNS = runs_of(9.9, 10, 10.1)


TEXT = baseline_json(RUNS)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "baseline.json"
    file.write_text(TEXT)
    return file


def known(file: Path, name: str) -> Known:
    found = read_baseline(file, RUNS, "again").known(figures_of(RUNS)[name])
    assert found is not None
    return found


def test_every_figure_is_read_as_it_was_written(written: Path) -> None:
    held = read_baseline(written, RUNS, "again")
    for name, figure in figures_of(RUNS).items():
        was, now = known_of(figure, RUNS), held.known(figure)
        assert now is not None, name
        assert (now.value, now.low, now.high) == pytest.approx((was.value, was.low, was.high)), name
        assert not now.has_steps


def test_a_check_beside_the_file_is_one_beside_its_captures(written: Path) -> None:
    figure, new = figures_of(RUNS)["step_ms"], [[11e6] * 9, [11.1e6] * 9, [11.2e6] * 9]
    in_file, in_captures = (
        ratio(each, new, 1.1) for each in (known(written, "step_ms"), known_of(figure, RUNS))
    )
    assert in_file.low == pytest.approx(in_captures.low, rel=1e-5)
    assert in_file.needed == in_captures.needed


def test_the_file_of_one_capture_is_compared_by_its_interval(written: Path) -> None:
    written.write_text(baseline_json(RUNS[:1]))
    held = known(written, "step_ms")
    found = ratio(held, [[11e6] * 40], 1.1)
    assert held.low is not None
    assert held.high is not None
    ends = 11e6 * held.value / held.high, 11e6 * held.value / held.low
    assert (found.low, found.high) == pytest.approx(ends)


def edited(**other: Any) -> str:
    """The file with another figure."""
    document = json.loads(TEXT)
    document["figures"]["step_ms"].update(other)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT[:400], "no sound baseline"),
        ("", "no sound baseline"),
        ("[]", "no sound baseline"),
        (edited(value=99.0), "somebody edited it"),
        (edited(low=10.5), "somebody edited it"),
        (edited(runs=[]), "there are 3 captures"),
        (edited(value="10"), "Expected `float`"),
        (TEXT.replace('"captures": 3', '"captures": 2'), "there are 2 captures"),
        (TEXT.replace("baseline-2", "baseline-9"), "its schema is nsysflow-base"),
    ],
)
def test_what_others_wrote_is_refused_with_advice(written: Path, text: str, said: str) -> None:
    written.write_text(text)
    with pytest.raises(Damaged) as refused:
        read_baseline(written, RUNS, "nsysflow check a --update-baseline")
    assert said in str(refused.value)
    assert str(refused.value).endswith("nsysflow check a --update-baseline")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (capture(row(1), gpu="NVIDIA A100"), "different GPUs: NVIDIA H200 and NVIDIA A100"),
        (ranks(track(row(1)), track(row(1))), "different numbers of ranks: 1 and 2"),
    ],
)
def test_a_baseline_of_another_machine_is_refused(written: Path, other: Capture, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        read_baseline(written, [other], "again")
