import click
import pytest

from nsysflow.analysis.options import StepPart
from nsysflow.cli.options import step_part


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("2:5", StepPart(2, 5)),
        ("2:", StepPart(2)),
        ("7", StepPart(7, 8)),
        ("!7", StepPart(7, 8, out=True)),
        ("!2:5", StepPart(2, 5, out=True)),
        ("!2:", StepPart(2, out=True)),
    ],
)
def test_a_part_is_written_as_it_is_typed(typed: str, part: StepPart) -> None:
    assert step_part(typed) == part
    assert str(part) == typed


def test_an_open_start_is_the_first_step() -> None:
    assert step_part(":3") == StepPart(0, 3)
    assert step_part(":") == StepPart()


@pytest.mark.parametrize("typed", ["", "!", "x", "!x", "1.5", "-1", "1:2:3", "!!3", "3:3", "5:2"])
def test_what_selects_nothing_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r"e\.g\. 2:5|B must be greater than A"):
        step_part(typed)
