"""`nsysflow check`: exit codes, files, budgets from settings, and what it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.check import file_below, file_in_repository
from nsysflow.cli.main import main
from nsysflow.report.document import report_json
from tests.analyses import run_of
from tests.reports import SAMPLES

SAMPLE = SAMPLES / "nan_check-sync.sqlite.xz"
STEPS = 40


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


def longer(document: dict[str, Any], times: float = 1.0) -> dict[str, Any]:
    """The same program, recorded for 40 steps, each a little different; all times longer."""
    series = document["series"]
    for track in series["tracks"]:
        columns = [track, *track["rows"]]
        for row in track["rows"]:
            row["at"] = [*range(STEPS)]
            row["ns"] = [round(times * row["ns"][0]) + at * 7 % 40 for at in range(STEPS)]
            row["count"] = 1
            row.pop("duration_ns", None)
        track["steps"], track["kinds"] = [*range(STEPS)], ["steady"] * STEPS
        rows = [row["ns"] for row in columns[1:]]
        track["duration_ns"] = [sum(step) for step in zip(*rows, strict=True)]
    return document


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three captures `a`, `b`, `c`, a slower one `slow`, and the program."""
    text = report_json(run_of("nan_check-sync"))
    for name, times in (("a", 1.0), ("b", 1.001), ("c", 0.999), ("slow", 1.3)):
        (tmp_path / name).mkdir()
        document = longer(json.loads(text), times)
        (tmp_path / name / "report.json").write_text(json.dumps(document))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "nan_check.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_report_within_its_budgets_exits_0(here: Path) -> None:
    done = check("a", "b", "c", "--max", "step_ms<=9", "--max", "idle_pct<60")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("within: 2 of 2 budgets\n")


def test_a_crossed_budget_exits_3_and_names_the_line(here: Path) -> None:
    done = check("a", "b", "c", "--max", "step_ms<=1", "--max", "idle_pct<60")
    assert done.exit_code == 3, done.output
    assert "nan_check.py:125 in check" in done.stdout
    assert done.stdout.endswith("crossed: 1 of 2 budgets\n")


def test_too_few_steps_exit_4_and_say_how_many_it_takes() -> None:
    done = check(SAMPLE, "--max", "step_ms<=9")
    assert done.exit_code == 4, done.output
    assert "steps would tell" in done.stdout
    assert "hint: runs differ by more than steps do" in done.stdout


def test_a_crossed_budget_counts_before_a_noisy_one(here: Path) -> None:
    done = check("a", "b", "--max", "step_ms<=9", "--max", "finding:sync-in-loop=none")
    assert done.exit_code == 3, done.output
    assert "too noisy to judge: 1" in done.stdout


def test_a_report_is_judged_like_its_report_json(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(report_json(run_of("nan_check-sync")))
    budgets = ["--max", "finding:sync-in-loop=none", "--max", "step_ms<=9", "--json"]
    documents = [json.loads(check(path, *budgets).stdout) for path in (SAMPLE, file)]
    assert documents[0]["budgets"] == documents[1]["budgets"]
    assert documents[0]["outcome"] == "crossed"


def test_budgets_stand_in_the_settings_file(here: Path) -> None:
    (here / "nsysflow.toml").write_text('[check]\nmax = ["step_ms<=1", "idle_pct<60"]\n')
    assert check("a").exit_code == 3
    (here / "nsysflow.toml").write_text("[check]\nmax = 'step_ms<=9'\n")
    assert check("a").exit_code == 0


def test_a_budget_that_is_typed_replaces_those_of_the_file(here: Path) -> None:
    (here / "nsysflow.toml").write_text('[check]\nmax = ["step_ms<=1"]\n')
    assert check("a", "--max", "step_ms<=9").exit_code == 0


def test_budgets_stand_in_pyproject(here: Path) -> None:
    (here / "pyproject.toml").write_text('[tool.nsysflow.check]\nmax = ["step_ms<=1"]\n')
    assert check("a").exit_code == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[check]\nmax = [\n  "step_ms<=9",\n  "stepms<=5",\n]\n', "nsysflow.toml:4: this report"),
        ('[check]\nmax = [\n  "step_ms<=five",\n]\n', "nsysflow.toml:3 is not NAME<=LIMIT"),
        ('[check]\nmax = ["step_ms<=9",\n"step_ms<=6"]\n', "nsysflow.toml:3 limit the same figure"),
    ],
)
def test_a_wrong_budget_of_a_file_exits_2_with_its_line(here: Path, text: str, said: str) -> None:
    (here / "nsysflow.toml").write_text(text)
    done = check("a")
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[check]\nmax = ["step_ms<=9" "idle_pct<9"]\n', "(at line 2, column 21)"),
        ("[check]\nmax = true\n", "a list in brackets"),
        ("[check]\nmaxx = ['step_ms<=9']\n", "did you mean max?"),
        ("[chek]\nmax = ['step_ms<=9']\n", "did you mean check?"),
    ],
)
def test_a_wrong_settings_file_is_refused_with_its_place(here: Path, text: str, said: str) -> None:
    (here / "nsysflow.toml").write_text(text)
    done = check("a")
    assert done.exit_code == 1
    assert "nsysflow.toml" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no budget is given"),
        (("--max", "stepms<=5"), "Did you mean step_ms?"),
        (("--max", "step_ms<=9", "--max", "step_ms<=6"), "'step_ms<=9' and 'step_ms<=6'"),
        (("--max", "phase:forwrd.kernel_ms<=5"), "phase:step/forward.kernel_ms"),
        (("--max", "finding:sync-in-lop=none"), "Did you mean sync-in-loop?"),
        (("--update-baseline",), "name it with --baseline FILE"),
    ],
)
def test_wrong_usage_exits_2(here: Path, words: tuple[str, ...], said: str) -> None:
    done = check("a", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_baseline_is_written_and_compared_with(here: Path) -> None:
    written = check("a", "b", "c", "--baseline", "perf/baseline.json", "--update-baseline")
    assert written.exit_code == 0, written.output
    assert "wrote perf/baseline.json: the figures of 3 captures" in written.stdout
    budget = ("--baseline", "perf/baseline.json", "--max", "step_ms<=1.05*baseline")
    assert check("a", "b", "c", *budget).exit_code == 0
    assert check("slow", *budget).exit_code == 4


def test_a_baseline_can_be_a_report(here: Path) -> None:
    budget = ("--max", "step_ms<=1.05*baseline")
    assert check("slow", "--baseline", "a", *budget).exit_code == 3
    assert check("b", "--baseline", "a", *budget).exit_code == 0


def test_the_baseline_of_a_settings_file_lies_beside_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "nsysflow.toml").write_text(
        '[check]\nmax = ["step_ms<=1.05*baseline"]\nbaseline = "baseline.json"\n'
    )
    monkeypatch.chdir(here / "src")
    assert check("../a", "--update-baseline").exit_code == 0
    assert (here / "baseline.json").is_file()
    assert check("../slow").exit_code == 3


def test_only_a_baseline_is_replaced(here: Path) -> None:
    done = check("a", "--baseline", "b/report.json", "--update-baseline")
    assert done.exit_code == 1
    assert "b/report.json is no baseline file" in done.stderr


def test_a_missing_baseline_is_refused_with_the_command_that_makes_it(here: Path) -> None:
    done = check("a", "--max", "step_ms<=baseline", "--baseline", "base.json")
    assert done.exit_code == 1
    command = done.stderr.strip().splitlines()[-1].split()
    assert check(*command[2:]).exit_code == 0
    assert check("a", "--max", "step_ms<=baseline", "--baseline", "base.json").exit_code in (0, 4)


def changed(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def other_gpu(document: dict[str, Any]) -> None:
    for track in document["series"]["tracks"]:
        track["gpu"] = "NVIDIA A100"


def test_captures_of_two_machines_are_not_judged_together(here: Path) -> None:
    changed(here / "b" / "report.json", other_gpu)
    for words in (("a", "b"), ("a", "--baseline", "b")):
        done = check(*words, "--max", "step_ms<=baseline")
        assert done.exit_code == 1
        assert "different GPUs: NVIDIA" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(schema=3), "an older nsysflow wrote"),
        (lambda d: d.update(schema=99), "a newer nsysflow wrote"),
        (lambda d: d["series"]["tracks"][0]["duration_ns"].__setitem__(3, 1), "somebody edited"),
        (lambda d: d["verdict"].update(valid=False, text="Kernels were lost"), "Kernels were lost"),
        (lambda d: d.pop("series"), "missing required field `series`"),
    ],
)
def test_a_report_json_that_cannot_be_trusted_is_refused(
    here: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    changed(here / "a" / "report.json", change)
    done = check("a", "--max", "step_ms<=9")
    assert done.exit_code == 1
    assert said in done.stderr


def test_a_truncated_report_json_is_refused(here: Path) -> None:
    file = here / "a" / "report.json"
    file.write_text(file.read_text()[:5000])
    done = check("a", "--max", "step_ms<=9")
    assert done.exit_code == 1
    assert "is no complete JSON document" in done.stderr


def test_one_capture_given_twice_is_refused(here: Path) -> None:
    done = check("a", "./a", "b", "--max", "step_ms<=9")
    assert done.exit_code == 1
    assert "was given twice" in done.stderr


def test_the_files_for_a_ci(here: Path) -> None:
    done = check("a", "--max", "step_ms<=1", "--junit", "out/junit.xml", "--github")
    assert done.exit_code == 3
    last = done.stdout.splitlines()[-1]
    assert last.startswith("::error file=src/nan_check.py,line=125,title=nsysflow check%3A step_ms")
    assert ET.parse(here / "out" / "junit.xml").getroot().get("failures") == "1"


def test_the_document_stays_alone_on_stdout(here: Path) -> None:
    done = check("a", "--max", "step_ms<=1", "--json", "--github")
    assert json.loads(done.stdout)["outcome"] == "crossed"
    assert done.stderr.startswith("::error ")


def test_a_report_json_is_checked_without_polars_and_rich(here: Path) -> None:
    """They take longer to import than the check takes."""
    budgets = ["--max", "step_ms<=9", "--max", "finding:small-grid=none"]
    argv = [sys.executable, "-X", "importtime", "-m", "nsysflow", "check", "a/report.json"]
    done = subprocess.run([*argv, *budgets], capture_output=True, text=True, check=True, cwd=here)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nsysflow.compare.judging" in imported
    assert not imported & {"polars", "rich", "torch"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (
        "src/train.py",
        "src/a/model.py",
        "src/b/model.py",
        "src/retrain.py",
        ".git/hidden.py",
        "env/pyvenv.cfg",
        "env/lib/installed.py",
        "env/pip.py",
    ):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train.py", "src/train.py"),
        ("a/model.py", "src/a/model.py"),
        ("model.py", None),
        ("rain.py", None),
        ("hidden.py", None),
        ("installed.py", None),
        ("pip.py", None),
        ("missing.py", None),
    ],
)
def test_it_is_the_only_one_that_ends_so(name: str, found: str | None) -> None:
    assert file_below(name) == found


@pytest.mark.usefixtures("tree")
def test_a_file_is_named_from_the_root_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert file_in_repository("train.py") == "src/train.py"
    monkeypatch.chdir(tmp_path / "src")
    assert file_in_repository("train.py") == "src/train.py"
    assert file_in_repository(str(tmp_path / "src" / "a" / "model.py")) == "src/a/model.py"


@pytest.mark.usefixtures("tree")
def test_outside_of_a_repository_it_is_named_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git" / "hidden.py").unlink()
    (tmp_path / ".git").rmdir()
    monkeypatch.chdir(tmp_path / "src")
    assert file_in_repository("train.py") == "train.py"


@pytest.mark.usefixtures("tree")
def test_a_whole_path_outside_of_the_repository_is_none_of_its_files(tmp_path: Path) -> None:
    assert file_in_repository(__file__) is None
    assert file_in_repository(str(tmp_path / "src" / "missing.py")) is None


@pytest.mark.usefixtures("tree")
def test_a_link_is_named_as_the_file_that_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "linked.py").symlink_to(tmp_path / "src" / "train.py")
    assert file_in_repository("linked.py") == "src/train.py"
