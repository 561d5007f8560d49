"""The doctor's page and its JSON document."""

import io
import json

import pytest
from rich.console import Console

from nsysflow.record.doctor import diagnose
from nsysflow.record.doctor_page import doctor_json, doctor_page
from tests.record.machines import HOME, NO_GPU, diagnosis, machines


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_only_commands_are_wider_than_the_page(width: int) -> None:
    for one in machines():
        for line in doctor_page(diagnose(one), HOME, width=width):
            copied = line.plain.startswith(" " * 23) or line.plain.startswith(("Works", "Type"))
            assert copied or line.cell_len <= min(width, 100)


def test_the_page_ends_with_what_works_and_what_to_type_first() -> None:
    *_, works, first = (line.plain for line in doctor_page(diagnosis(), HOME, width=80))
    assert works.startswith("Works here: profile, ")
    assert first == "Type first: nsysflow profile launch_bound"


def test_no_color_means_no_escape_codes_at_all() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, color_system="256")
    for line in doctor_page(diagnosis(gpus=NO_GPU, temp_free_bytes=0), HOME, width=80):
        console.print(line)
    assert "problem" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_nothing_shows_the_home_folder() -> None:
    for one in machines():
        found = diagnose(one)
        shown = [line.plain for line in doctor_page(found, HOME, width=80)]
        assert str(HOME) not in "\n".join([*shown, doctor_json(found, HOME)])


def test_the_document_holds_every_check_and_whether_profiling_works() -> None:
    found = json.loads(doctor_json(diagnosis(gpus=NO_GPU), HOME))
    assert set(found) == {"checks", "works", "first", "profile"}
    assert found["profile"] is False
    assert {key for check in found["checks"] for key in check} == {
        "check",
        "status",
        "seen",
        "advice",
        "command",
    }
