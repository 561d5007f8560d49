"""Wrong options from Python code are errors of the one family."""

from typing import Any

import pytest

from nsysflow.analysis.options import Options, StepPart, require_valid
from nsysflow.base.errors import SelectionError


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("device", "0", "expected `int | null`, got `str`"),
        ("from_ns", 1.5, "expected `int | null`, got `float`"),
        ("from_ns", 10**30, "is no time in a report"),
        ("framework_gap_ns", 1 << 62, "is no time in a report"),
        ("steps", 3, "got `int`"),
        ("steps", (StepPart(3, 3),), "selects no step"),
        ("steps", (StepPart(-1),), "steps are counted from 0"),
        ("steps", (StepPart(10**31),), "no program has so many steps"),
        ("steps", (StepPart(0, 2**63),), "no program has so many steps"),
        ("skip", -1, "-1 is negative"),
        ("framework_gap_ns", -5, "-5 is negative"),
        ("domains_added", "NCCL", "expected `array`, got `str`"),
        ("flops_dtype", "float7", "invalid enum value 'float7'"),
        ("flops_per_step", -1.0, "not a number of operations"),
        ("flops_per_step", float("nan"), "not a number of operations"),
        ("flops_per_step", 1e30, "not a number of operations"),
        ("kernel_classes", (("mine", "("),), "'(' is not a regular expression"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_wrong(option: str, value: Any, problem: str) -> None:
    with pytest.raises(SelectionError) as caught:
        require_valid(Options(**{option: value}))
    assert caught.value.seen.startswith(f"Options({option}=…): ")
    assert problem in caught.value.seen


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(
            device=0,
            steps=(StepPart(0, 3), StepPart(1, 2, out=True)),
            skip=0,
            framework_gap_ns=0,
            from_ns=-5,
            to_ns=9,
        ),
        Options(flops_per_step=10**12, flops_dtype="fp8", kernel_classes=(("mine", "a.*"),)),
        Options(domains_added=("NCCL",), range="step", step="step/forward"),
    ],
)
def test_what_an_analysis_can_use_is_valid(options: Options) -> None:
    require_valid(options)


@pytest.mark.parametrize(
    ("command", "typed"),
    [((), "python train.py"), (("python3", "my run.py", "--fast"), "python3 'my run.py' --fast")],
)
def test_advice_to_record_again_has_the_program_s_own_command(
    command: tuple[str, ...], typed: str
) -> None:
    again = Options(command=command).recording("--sample-python 0")
    assert again == f"nsysflow profile --sample-python 0 -- {typed}"


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
    assert StepPart.parse(typed) == part
    assert str(part) == typed


def test_an_open_start_is_the_first_step() -> None:
    assert StepPart.parse(":3") == StepPart(0, 3)
    assert StepPart.parse(":") == StepPart()


@pytest.mark.parametrize("typed", ["", "!", "x", "!x", "1.5", "-1", "1:2:3", "!!3", "3:3", "5:2"])
def test_what_selects_nothing_is_no_part(typed: str) -> None:
    with pytest.raises(SelectionError, match=r"e\.g\. 2:5|B must be greater than A"):
        StepPart.parse(typed)


@pytest.mark.parametrize("typed", [f"1{31 * '0'}", f"0:{2**63}"])
def test_numbers_that_no_step_has_are_no_part(typed: str) -> None:
    """Fuzzing found it (seed 20261214, case 3315): a report without steps gave a traceback."""
    with pytest.raises(SelectionError, match="no program has so many steps"):
        StepPart.parse(typed)
