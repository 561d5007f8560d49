"""The command line: what it prints, what it writes, what it refuses."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.tables.gaps import GAP_SUMMARY
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.analysis.tables.syncs import SYNCS
from nsysflow.base.errors import Damaged
from nsysflow.cli.main import main
from nsysflow.compare.document import SCHEMA_VERSION
from nsysflow.runs import analyze as runs_analyze
from nsysflow.runs.manifest import write_manifest
from tests.analyses import SCHEMAS
from tests.report.handmade import MS, Results, handmade, training
from tests.reports import SAMPLES
from tests.runs.runs import RUN

FILES = {
    "summary.md", "gap-report.csv", "gap-report.md", "report.json", "gaps.csv", "gap_summary.csv",
    "phases.csv", "syncs.csv", "launches.csv", "starved.csv", "kernels.csv", "copies.csv",
    "comm.csv", "steps.csv", "waited.csv", "findings.csv", "step_groups.csv",
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Replace the analysis by the hand-made training run; holds the options it was asked with."""
    seen: list[Options] = []

    def analysed(_reports: object, options: Options, **_asked: object) -> Results:
        seen.append(options)
        return Results([training()])

    monkeypatch.setattr(runs_analyze, "analyze_reports", analysed)
    return seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a report of no content in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"")
    return tmp_path


def analyze(*arguments: str) -> Result:
    """`nsysflow analyze` with these arguments."""
    return CliRunner().invoke(main, ["analyze", *arguments])


def commands() -> list[click.Command]:
    """Every command, and the group itself."""
    return [main, *main.commands.values()]


@pytest.mark.parametrize("command", commands(), ids=lambda each: str(each.name))
def test_every_command_shows_an_example(command: click.Command) -> None:
    assert "Example:" in (command.help or "")


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_explains_itself(command: str) -> None:
    done = CliRunner().invoke(main, [command, "-h"])
    assert done.exit_code == 0
    assert "Usage:" in done.stdout


def test_the_version_is_the_packages() -> None:
    assert nsysflow.__version__ in CliRunner().invoke(main, ["--version"]).stdout


def test_the_tables_that_can_be_printed_are_those_of_the_analysis() -> None:
    assert {*ABOUT} < {*SCHEMAS}


@pytest.mark.usefixtures("asked")
def test_a_page_is_printed_and_the_files_lie_beside_the_report(here: Path) -> None:
    done = analyze("run.sqlite")
    assert done.exit_code == 0, done.output
    assert "compute-bound (49 %" in done.stdout
    assert {path.name for path in (here / "run.sqlite.nsysflow").iterdir()} == FILES
    assert "wrote run.sqlite.nsysflow" in done.stderr
    assert "wrote" not in done.stdout


@pytest.mark.usefixtures("asked")
def test_the_page_in_a_pipe_has_no_colour(here: Path) -> None:
    assert "\x1b" not in analyze("run.sqlite", "--no-files").stdout
    assert not (here / "run.sqlite.nsysflow").exists()


@pytest.mark.usefixtures("asked", "here")
def test_full_prints_what_one_screen_has_no_room_for() -> None:
    page, full = (analyze("run.sqlite", "--no-files", *words).stdout for words in ([], ["--full"]))
    for title in ("Longest gaps", "Copies", "Data quality"):
        assert title not in page
        assert title in full


@pytest.mark.usefixtures("asked")
def test_no_files_writes_nothing(here: Path) -> None:
    assert analyze("run.sqlite", "--no-files").exit_code == 0
    assert [path.name for path in here.iterdir()] == ["run.sqlite"]


@pytest.mark.usefixtures("asked")
def test_the_same_folder_twice_is_replaced(here: Path) -> None:
    assert analyze("run.sqlite", "-o", "out").exit_code == 0
    (here / "out" / "gaps.csv").write_text("old")
    assert analyze("run.sqlite", "-o", "out").exit_code == 0
    assert (here / "out" / "gaps.csv").read_text().startswith("report,device,gap")


def test_another_folder_is_refused_before_any_work(asked: list[Options], here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "thesis.tex").write_text("mine")
    done = analyze("run.sqlite", "-o", "out")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("nsysflow: out exists")
    assert asked == []
    assert [path.name for path in (here / "out").iterdir()] == ["thesis.tex"]


@pytest.mark.usefixtures("asked")
def test_force_writes_into_another_folder_and_keeps_what_is_there(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "thesis.tex").write_text("mine")
    assert analyze("run.sqlite", "-o", "out", "--force").exit_code == 0
    assert {path.name for path in (here / "out").iterdir()} == FILES | {"thesis.tex"}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("form", [["csv"], ["md"], ["table"]])
def test_one_table_is_printed_and_nothing_written(here: Path, form: list[str]) -> None:
    done = analyze("run.sqlite", "--table", "syncs", "--format", *form)
    assert done.exit_code == 0, done.output
    assert "cudaDeviceSynchronize" in done.stdout
    assert [path.name for path in here.iterdir()] == ["run.sqlite"]


@pytest.mark.usefixtures("asked", "here")
def test_a_csv_table_reads_back() -> None:
    done = analyze("run.sqlite", "--table", "syncs", "--format", "csv")
    table = pl.read_csv(done.stdout_bytes)
    assert table.columns == list(SYNCS)
    assert table["induced_idle_ns"].to_list() == [8 * MS, 0]


@pytest.mark.usefixtures("asked", "here")
def test_a_parquet_table_reads_back_with_its_types() -> None:
    done = analyze("run.sqlite", "--table", "syncs", "--format", "parquet")
    assert pl.read_parquet(io.BytesIO(done.stdout_bytes)).schema == SYNCS


@pytest.mark.usefixtures("asked", "here")
def test_a_format_alone_means_the_gap_summary() -> None:
    done = analyze("run.sqlite", "--format", "csv")
    assert done.stdout.splitlines()[0] == ",".join(GAP_SUMMARY)


@pytest.mark.usefixtures("asked", "here")
def test_top_shortens_a_table() -> None:
    done = analyze("run.sqlite", "--table", "syncs", "--format", "csv", "--top", "1")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.usefixtures("asked", "here")
def test_the_document_is_printed() -> None:
    done = analyze("run.sqlite", "--json")
    assert json.loads(done.stdout)["schema"] == SCHEMA_VERSION


@pytest.mark.usefixtures("asked", "here")
def test_gaps_go_to_stdout() -> None:
    done = analyze("run.sqlite", "--gaps-csv", "-", "--min-gap-us", "10000")
    assert [line.split(",")[2] for line in done.stdout.splitlines()] == ["gap", "7"]


@pytest.mark.usefixtures("asked")
def test_gaps_go_to_one_file_and_no_other(here: Path) -> None:
    done = analyze("run.sqlite", "--gaps-csv", "gaps.csv")
    assert (done.exit_code, done.stdout) == (0, "")
    assert {path.name for path in here.iterdir()} == {"run.sqlite", "gaps.csv"}
    assert len((here / "gaps.csv").read_text().splitlines()) == 3


@pytest.mark.usefixtures("asked")
def test_gaps_never_overwrite_the_report(here: Path) -> None:
    done = analyze("run.sqlite", "--gaps-csv", "./run.sqlite")
    assert done.exit_code == 1
    assert "is the report itself" in done.stderr
    assert (here / "run.sqlite").read_bytes() == b""


@pytest.mark.usefixtures("asked")
def test_a_full_disk_is_one_message_and_no_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError("No space left on device (os error 28)")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    done = analyze("run.sqlite", "-o", "out")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("nsysflow: cannot write out: No space left on device")
    assert [path.name for path in here.iterdir()] == ["run.sqlite"]


@pytest.mark.usefixtures("asked")
def test_several_reports_need_a_folder(here: Path) -> None:
    (here / "rank1.sqlite").write_bytes(b"")
    done = analyze("run.sqlite", "rank1.sqlite")
    assert done.exit_code == 2
    assert "-o DIR" in done.stderr
    assert analyze("run.sqlite", "rank1.sqlite", "--no-files").exit_code == 0
    assert analyze("run.sqlite", "rank1.sqlite", "-o", "both").exit_code == 0


@pytest.mark.usefixtures("asked", "here")
@pytest.mark.parametrize(
    "wrong",
    [
        ["--steps", "!"],
        ["--steps", "5:5"],
        ["--steps", "a:b"],
        ["--from", "soon"],
        ["--framework-gap-us", "nan"],
        ["--framework-gap-us", "-1"],
        ["--min-gap-us", "-0.5"],
        ["--table", "nothing"],
        ["--top", "0"],
        ["--json", "--table", "gaps"],
        ["--full", "--json"],
        ["--full", "--table", "gaps"],
        ["-o", "out", "--no-files"],
        ["--no-such-option"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_two(wrong: list[str]) -> None:
    assert analyze("run.sqlite", *wrong).exit_code == 2


@pytest.mark.usefixtures("here")
def test_options_arrive_in_ns(asked: list[Options]) -> None:
    done = analyze(
        *("run.sqlite", "--no-files", "--device", "1", "--range", "train", "--step", "iter"),
        *("--from", "8800.123456789", "--to", "9e3", "--skip", "3", "--steps", "2:"),
        *("--steps", "!7"),
        *("--framework-gap-us", "12.5", "--domain", "NCCL", "--domain", "-mine"),
    )
    assert done.exit_code == 0, done.output
    assert asked == [
        Options(
            framework_gap_ns=12_500, domains_added=("NCCL",), domains_removed=("mine",), device=1,
            range="train", from_ns=8_800_123_456_789, to_ns=9_000_000_000_000, step="iter",
            skip=3, steps=(StepPart(2), StepPart(7, 8, out=True)),
        )
    ]  # fmt: skip


def test_steps_and_whole_may_stand_in_a_settings_file(here: Path, asked: list[Options]) -> None:
    (here / "nsysflow.toml").write_text('[analyze]\nsteps = ["2:", "!7", 4]\nwhole = true\n')
    assert analyze("run.sqlite", "--no-files").exit_code == 0
    assert analyze("run.sqlite", "--no-files", "--steps", "1", "--no-whole").exit_code == 0
    of_file = (StepPart(2), StepPart(7, 8, out=True), StepPart(4, 5))
    assert asked == [Options(steps=of_file, whole=True), Options(steps=(StepPart(1, 2),))]


@pytest.mark.usefixtures("here")
def test_an_error_is_one_message_and_exit_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_asked: object, **_named: object) -> Results:
        raise Damaged("run.sqlite is truncated")

    monkeypatch.setattr(runs_analyze, "analyze_reports", damaged)
    done = analyze("run.sqlite")
    assert (done.exit_code, done.stdout, done.stderr) == (
        1,
        "",
        "nsysflow: run.sqlite is truncated\n",
    )


@pytest.mark.usefixtures("here")
def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_asked: object, **_named: object) -> Results:
        raise ZeroDivisionError

    monkeypatch.setattr(runs_analyze, "analyze_reports", broken)
    assert isinstance(analyze("run.sqlite").exception, ZeroDivisionError)


@pytest.mark.usefixtures("here")
def test_no_gpu_work_is_said_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Results([handmade()])
    monkeypatch.setattr(runs_analyze, "analyze_reports", lambda *_asked, **_named: empty)
    done = analyze("run.sqlite")
    assert done.exit_code == 0
    assert "no GPU work" in done.stdout


@pytest.mark.usefixtures("here", "asked")
@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_table_without_rows_is_said_to_have_none(form: str) -> None:
    done = analyze("run.sqlite", "--table", "ranks", "--format", form)
    assert done.exit_code == 0
    assert "ranks has no rows" in done.stderr
    assert bool(done.stdout) == (form == "csv")


@pytest.mark.usefixtures("here")
def test_one_report_cannot_be_two_ranks() -> None:
    done = analyze("run.sqlite", "./run.sqlite", "--no-files")
    assert done.exit_code == 1
    assert "given twice" in done.stderr


def test_classes_of_kernels_come_from_a_file(here: Path, asked: list[Options]) -> None:
    (here / "classes.toml").write_text("[[class]]\nname = 'mine'\npattern = '^my_'\n")
    assert analyze("run.sqlite", "--no-files", "--kernel-classes", "classes.toml").exit_code == 0
    assert asked[0].kernel_classes == (("mine", "^my_"),)
    missing = analyze("run.sqlite", "--no-files", "--kernel-classes", "no.toml")
    assert missing.exit_code == 1
    assert "no.toml cannot be read" in missing.stderr


@pytest.mark.parametrize("typed", ["0", "-1", "nan", "inf", "1e19", "many"])
def test_flops_that_no_step_has_are_bad_usage(typed: str) -> None:
    done = CliRunner().invoke(main, ["analyze", "run.sqlite", f"--flops-per-step={typed}"])
    assert done.exit_code == 2
    assert "--flops-per-step" in done.stderr


@pytest.mark.usefixtures("asked")
def test_gaps_become_parquet_if_asked_and_it_is_said(here: Path) -> None:
    done = analyze("run.sqlite", "-o", "out", "--gaps-format", "parquet")
    assert (here / "out" / "gaps.parquet").is_file()
    assert not (here / "out" / "gaps.csv").exists()
    assert done.stderr.endswith("the tables as CSV, all gaps as gaps.parquet\n")


@pytest.mark.usefixtures("asked")
def test_without_a_report_the_newest_run_here_is_analysed(here: Path) -> None:
    (here / "run1").mkdir()
    write_manifest(here / "run1", RUN)
    done = analyze()
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("analysing run1, the newest run here\n")
    assert (here / "run1" / "report.json").is_file()


@pytest.mark.usefixtures("asked", "here")
def test_without_a_report_and_a_run_the_error_says_what_to_type() -> None:
    done = analyze()
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.endswith("  nsysflow demo\n")


def test_pack_says_how_large_the_copy_is_and_the_report_was(here: Path) -> None:
    report = SAMPLES / "nan_check-sync.sqlite.xz"
    plain = CliRunner().invoke(main, ["pack", str(report), "-o", "plain.sqlite"])
    small = CliRunner().invoke(main, ["pack", "plain.sqlite", "-o", "small.sqlite.xz"])
    size = r"[\d.]+ kB"
    assert re.fullmatch(rf"wrote plain\.sqlite \({size}, unpacked from {size}\)\n", plain.stderr)
    assert re.fullmatch(rf"wrote small\.sqlite\.xz \({size}, packed from {size}\)\n", small.stderr)


def demo(environment: Mapping[str, str]) -> "subprocess.CompletedProcess[bytes]":
    """`nsysflow demo` where these variables are set."""
    code = "from nsysflow.cli.main import main; main(['demo'], prog_name='nsysflow')"
    ours = {name: held for name, held in os.environ.items() if not name.startswith("LC_")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**ours, **environment}, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("environment", "encoding"),
    [
        ({"PYTHONIOENCODING": "latin-1"}, "latin-1"),
        ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}, "ascii"),
    ],
)
def test_a_page_is_the_same_but_for_letters_that_standard_output_lacks(
    environment: Mapping[str, str], encoding: str
) -> None:
    done = demo(environment)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode(encoding)
    whole = demo({"PYTHONIOENCODING": "utf-8"}).stdout.decode()
    assert len(shown) == len(whole)
    other = {(drawn, letter) for drawn, letter in zip(whole, shown, strict=True) if drawn != letter}
    assert len(other) == len({letter for _, letter in other}) > 0
    assert all(not drawn.isascii() and letter in "#=+.-~" for drawn, letter in other)
