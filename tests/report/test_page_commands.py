"""What the page proposes to type, on every real report: it works, and shows something."""

import re

import nsysflow
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.cli.options import step_part
from nsysflow.report.results import Results
from nsysflow.report.terminal import page
from tests.analyses import NAMES, analysed, every_report, loaded


def proposed(name: str) -> list[tuple[str, str]]:
    """The options on the page of a report, each with its value."""
    lines = page(Results([analysed(name)]), width=1_000, top=None)
    text = "\n".join(line.plain for line in lines)
    return re.findall(r"(--[a-z-]+) ('![\d:]+'|\d*:\d*|\w+)", text)


@every_report
def test_a_table_that_the_page_proposes_has_rows(name: str) -> None:
    for option, value in proposed(name):
        if option == "--table":
            assert value in TABLES
            assert not getattr(analysed(name), value).is_empty(), value


@every_report
def test_steps_and_devices_that_the_page_proposes_are_there(name: str) -> None:
    for option, value in proposed(name):
        if option == "--steps":
            options = nsysflow.Options(steps=(step_part(value.strip("'")),))
        elif option == "--device":
            options = nsysflow.Options(device=int(value))
        else:
            continue
        assert not nsysflow.analyze(loaded(name), options).accounting.is_empty()


def test_real_reports_propose_tables_and_steps() -> None:
    assert {"--table", "--steps"} <= {option for name in NAMES for option, _ in proposed(name)}
