import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result

from nsysflow.cli.check import file_below, file_in_repository
from nsysflow.report.document import report_json
from tests.analyses import run_of
from tests.cli.running import imported, refused, run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

SAMPLE = SAMPLES / "nan_check-sync.sqlite.xz"
STEPS = 40
STEP = ("--max", "step_ms<=9")
CROSSED = ("--max", "step_ms<=1")
BESIDE = ("--max", "step_ms<=1.05*baseline")


def check(*words: str | Path, code: int) -> Result:
    return run("check", *words, code=code)


def longer(document: dict[str, Any], times: float = 1.0) -> dict[str, Any]:
    """The same program, recorded for 40 steps, each a little different; all times longer."""
    for track in document["series"]["tracks"]:
        for row in track["rows"]:
            row["at"] = [*range(STEPS)]
            row["ns"] = [round(times * row["ns"][0]) + at * 7 % 40 for at in range(STEPS)]
            row["count"] = 1
            row.pop("duration_ns", None)
        track["steps"], track["kinds"] = [*range(STEPS)], ["steady"] * STEPS
        rows = [row["ns"] for row in track["rows"]]
        track["duration_ns"] = [sum(step) for step in zip(*rows, strict=True)]
    return document


@cache
def documents() -> dict[str, str]:
    """The report.json of three captures `a`, `b`, `c`, and of a slower one `slow`."""
    text = report_json(run_of("nan_check-sync"))
    lengths = {"a": 1.0, "b": 1.001, "c": 0.999, "slow": 1.3}
    return {name: json.dumps(longer(json.loads(text), by)) for name, by in lengths.items()}


@pytest.fixture
def here(here: Path) -> Path:
    """The working folder, with these captures and the program."""
    for name, document in documents().items():
        (here / name).mkdir()
        (here / name / "report.json").write_text(document)
    (here / "src").mkdir()
    (here / "src" / "nan_check.py").touch()
    return here


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("a", "b", "c", *STEP, "--max", "idle_pct<60"), 0, "within: 2 of 2 budgets"),
        (("a", "b", "c", *CROSSED, "--max", "idle_pct<60"), 3, "nan_check.py:125 in check"),
        # a crossed budget counts before a noisy one
        (("a", "b", *STEP, "--max", "finding:sync-in-loop=none"), 3, "too noisy to judge: 1"),
        ((SAMPLE, *STEP), 4, "steps would tell"),
    ],
)
def test_the_exit_code_is_the_verdict(words: tuple[str | Path, ...], code: int, said: str) -> None:
    assert said in check(*words, code=code).stdout


def test_a_report_is_judged_like_its_report_json(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(report_json(run_of("nan_check-sync")))
    words = ("--max", "finding:sync-in-loop=none", *STEP, "--json")
    documents = [json.loads(check(path, *words, code=3).stdout) for path in (SAMPLE, file)]
    assert documents[0]["budgets"] == documents[1]["budgets"]
    assert documents[0]["outcome"] == "crossed"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("nsysflow.toml", '[check]\nmax = ["step_ms<=1", "idle_pct<60"]\n'),
        ("pyproject.toml", '[tool.nsysflow.check]\nmax = ["step_ms<=1"]\n'),
    ],
)
def test_typed_budgets_replace_those_of_a_file(here: Path, file: str, text: str) -> None:
    (here / file).write_text(text)
    check("a", code=3)
    check("a", *STEP, code=0)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('[check]\nmax = [\n "step_ms<=9",\n "stepms<=5",\n]\n', 2, "nsysflow.toml:4: this report"),
        ('[check]\nmax = [\n "step_ms<=five",\n]\n', 2, "nsysflow.toml:3 is not NAME<=LIMIT"),
        ('[check]\nmax = ["step_ms<=9",\n"step_ms<=6"]\n', 2, "nsysflow.toml:3 limit the same"),
        ("[check]\nmax = true\n", 1, "a list in brackets"),
    ],
)
def test_a_wrong_budget_is_refused_with_line(here: Path, text: str, code: int, said: str) -> None:
    (here / "nsysflow.toml").write_text(text)
    message = refused("check", "a", code=code)
    assert "nsysflow.toml" in message
    assert said in message


@pytest.mark.usefixtures("here")
def test_a_baseline_is_written_and_compared_with() -> None:
    baseline = ("--baseline", "perf/baseline.json")
    written = check("a", "b", "c", *baseline, "--update-baseline", code=0)
    assert "wrote perf/baseline.json: the figures of 3 captures" in written.stdout
    check("a", "b", "c", *baseline, *BESIDE, code=0)
    check("slow", *baseline, *BESIDE, code=4)


@pytest.mark.usefixtures("here")
def test_a_baseline_can_be_a_report_which_is_never_replaced() -> None:
    check("slow", "--baseline", "a", *BESIDE, code=3)
    check("b", "--baseline", "a", *BESIDE, code=0)
    said = refused("check", "a", "--baseline", "b/report.json", "--update-baseline", code=1)
    assert "b/report.json is no baseline file" in said


def test_a_file_s_baseline_lies_beside_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = '[check]\nmax = ["step_ms<=1.05*baseline"]\nbaseline = "baseline.json"\n'
    (here / "nsysflow.toml").write_text(settings)
    monkeypatch.chdir(here / "src")
    check("../a", "--update-baseline", code=0)
    assert (here / "baseline.json").is_file()
    check("../slow", code=3)


@pytest.mark.usefixtures("here")
def test_a_missing_baseline_is_refused_with_the_command_that_makes_it() -> None:
    beside = ("a", "--max", "step_ms<=2*baseline", "--baseline", "base.json")
    said = check(*beside, code=1).stderr
    _, _, *words = said.strip().splitlines()[-1].split()
    check(*words, code=0)
    check(*beside, code=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: it["series"]["tracks"][0].update(gpu="A100"), "different GPUs: A100"),
        (lambda it: it.update(schema=3), "an older nsysflow wrote"),
        (lambda it: it["verdict"].update(valid=False, text="Lost"), "Lost"),
    ],
)
def test_captures_that_cannot_be_trusted_or_compared_are_not_judged(
    here: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    file = here / "a" / "report.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    assert said in refused("check", "a", "b", "--max", "step_ms<=baseline", code=1)


def test_the_files_for_a_ci(here: Path) -> None:
    done = check("a", *CROSSED, "--junit", "out/junit.xml", "--github", code=3)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("::error file=src/nan_check.py,line=125,title=nsysflow check%3A step_ms")
    assert ET.parse(here / "out" / "junit.xml").getroot().get("failures") == "1"
    done = check("a", *CROSSED, "--json", "--github", code=3)
    assert json.loads(done.stdout)["outcome"] == "crossed"
    assert done.stderr.startswith("::error ")


@pytest.mark.usefixtures("here")
def test_a_report_json_is_checked_without_polars_and_rich() -> None:
    """They take longer to import than the check takes."""
    _, modules = imported("check", "a/report.json", *STEP, "--max", "finding:small-grid=none")
    assert "nsysflow.compare.judging" in modules
    assert not modules & {"polars", "rich", "torch"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ("src/train.py", "src/a/model.py", "src/b/model.py", "src/retrain.py")
    environment = ("env/pyvenv.cfg", "env/lib/installed.py", "env/pip.py")
    for file in (*program, *environment, ".git/hidden.py"):
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
        *((name, None) for name in ("rain.py", "hidden.py", "installed.py", "pip.py", "no.py")),
    ],
)
def test_it_is_the_only_one_that_ends_so(name: str, found: str | None) -> None:
    assert file_below(name) == found


@pytest.mark.usefixtures("tree")
def test_a_file_is_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linked.py").symlink_to(tmp_path / "src" / "train.py")
    for name in ("train.py", "linked.py"):
        assert file_in_repository(name) == "src/train.py"
    monkeypatch.chdir(tmp_path / "src")
    assert file_in_repository("train.py") == "src/train.py"
    assert file_in_repository(str(tmp_path / "src" / "a" / "model.py")) == "src/a/model.py"
    shutil.rmtree(tmp_path / ".git")
    assert file_in_repository("train.py") == "train.py"
