"""`nsysflow explain`: a finding in full, a help page on a name, and what it refuses."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nsysflow
from nsysflow.base.units import duration, percent
from nsysflow.cli.main import main
from nsysflow.report.explain.names import names_by_kind
from tests.exports import write_export
from tests.reports import DATA, SAMPLES
from tests.sharing import shared_analyses

REPORT = SAMPLES / "nan_check-sync.sqlite.xz"
WITH_FINDINGS = [
    REPORT,
    *(SAMPLES / f"{name}.sqlite.xz" for name in ("launch_bound-eager", "h2d-pageable")),
    DATA / "h200-gpt2-eager.sqlite.xz",
]
every_one = pytest.mark.parametrize("report", WITH_FINDINGS, ids=lambda path: path.name)


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """Commands on a sample share its analysis."""
    with shared_analyses():
        yield


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@cache
def first_finding(report: Path) -> str:
    result = run("explain", "1", str(report))
    assert result.exit_code == 0, result.output
    return result.stdout


@every_one
def test_a_finding_says_what_it_saves_as_the_table_does(report: Path) -> None:
    row = nsysflow.analyze([report]).findings.row(0, named=True)
    most, pct = duration(row["saving_high_ns"]), percent(row["saving_pct"])
    shown = first_finding(report)
    assert re.search(rf"^saves .*{most} a step \({pct} of .*\)$", shown, re.MULTILINE)
    assert row["title"] in " ".join(shown.split())


def test_a_finding_says_how_its_saving_was_reckoned() -> None:
    assert "replayed: the recorded steps without this wait" in first_finding(REPORT)


def test_the_saving_without_the_profiler_is_estimated_where_such_a_step_is_known() -> None:
    slowed = first_finding(SAMPLES / "sum_many-loop.sqlite.xz")
    assert re.search(r"^ +estimated without the profiler: .* of 33\.7 ms", slowed, re.MULTILINE)


def test_a_finding_shows_its_calls_and_the_gaps_behind_it() -> None:
    shown = first_finding(REPORT)
    calls, gaps = shown.partition("Largest gaps behind it")[::2]
    assert re.search(r"0\.020756 s +1\.38 ms +700 us", calls)
    assert re.search(r"0\.022135 s +640 us +2 +sync +memcpy DtoH +memset", gaps)


@every_one
def test_a_finding_fits_two_screens(report: Path) -> None:
    assert len(first_finding(report).splitlines()) <= 90


@pytest.mark.slow
@every_one
def test_each_command_that_a_finding_prints_runs_and_shows_something(report: Path) -> None:
    whole = first_finding(report).replace(" \\\n", "")
    commands = re.findall(r"^  (nsysflow .*)$", whole, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
        assert len(result.stdout.splitlines()) >= 3, command


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names_by_kind()["causes"], *names_by_kind()["tables"], "gap"])
def test_each_command_of_a_help_page_is_one_that_there_is(name: str) -> None:
    commands = re.findall(r"^  (nsysflow analyze .*)$", run("explain", name).stdout, re.MULTILINE)
    assert commands
    for command in commands:
        result = run(*shlex.split(command.replace("REPORT", shlex.quote(str(REPORT))))[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"


def test_without_a_report_the_newest_run_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("explain", "1")
    assert result.exit_code == 1
    assert "no run of nsysflow profile is in this folder" in result.stderr


def test_the_settings_of_analyze_hold_for_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsysflow.toml").write_text('[analyze]\nstep = "forward"\nskip = 0\n')
    monkeypatch.chdir(tmp_path)
    result = run("explain", "1", str(REPORT))
    assert "--step forward --skip 0" in result.stdout.replace(" \\\n     ", "")


def test_a_path_with_a_space_is_quoted(tmp_path: Path) -> None:
    copy = tmp_path / "my report.sqlite.xz"
    copy.write_bytes(REPORT.read_bytes())
    assert f"nsysflow analyze '{copy}' --table syncs" in run("explain", "1", str(copy)).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("snyc",), "nothing is called 'snyc'. Did you mean sync"),
        (("quark",), "nothing is called 'quark'. See what there is:\n  nsysflow explain"),
        (("99", str(REPORT)), "has no finding 99. Its "),
        (("0", str(REPORT)), "has no finding 0"),
        (("sync", str(REPORT)), "sync needs no REPORT: nsysflow explain sync"),
        ((str(REPORT),), f"nsysflow explain 1 {REPORT}"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_what_is_not_there_is_refused_with_what_is(words: tuple[str, ...], said: str) -> None:
    result = run("explain", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_report_without_gpu_work_has_no_finding(tmp_path: Path) -> None:
    result = run("explain", "1", str(write_export(tmp_path / "empty.sqlite")))
    assert result.exit_code == 2
    assert "empty has no finding 1. No change that nsysflow knows would save" in result.stderr


def test_without_a_name_all_are_listed() -> None:
    shown = run("explain").stdout
    assert all(
        name in shown for name in ("blocking_copy", "communication", "straggler", "gap_summary")
    )


def test_the_commands_of_a_finding_are_of_the_steps_that_it_was_found_in() -> None:
    shown = run("explain", "1", str(REPORT), "--steps", "1:3", "--step", "step").stdout
    commands = re.findall(r"^  (nsysflow .*)$", shown.replace(" \\\n     ", ""), re.MULTILINE)
    *of_report, of_rule = commands
    assert of_rule.startswith("nsysflow explain ")
    for command in of_report:
        assert {"--steps 1:3", "--step step"} <= {*re.findall(r"--steps? \S+", command)}


@pytest.mark.parametrize("number", [1, 2])
def test_a_finding_of_several_ranks_is_explained_in_its_own_report(number: int) -> None:
    ranks = [str(SAMPLES / f"ddp-no_overlap-rank{rank}.sqlite.xz") for rank in (0, 1)]
    report = nsysflow.analyze(ranks).findings["report"][number - 1]
    shown = run("explain", str(number), *ranks).stdout
    assert f" in {report} · " in shown
    assert f"nsysflow analyze {SAMPLES / report}.sqlite.xz --table " in shown.replace("'", "")
