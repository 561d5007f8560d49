import lzma
import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from nsysflow.record.failure import nsys_crashed
from tests.action.conftest import Profiles
from tests.action.forge_server import Server
from tests.action.runner import ACTION, TOKEN, Runner
from tests.cli.running import run
from tests.nsys.real import ATTEMPTS, real_nsys
from tests.reports import ROOT
from tests.runtime.programs import LOOP

STEPS = ACTION["runs"]["steps"]
FINDING = "finding:sync-in-loop=none"
"""A budget that one capture is enough to judge."""

pytestmark = pytest.mark.long


def kept(server: Server) -> dict[str, bytes]:
    """The files of the newest artifact."""
    newest = server.artifacts[0]["archive_download_url"].partition("/moved")[2]
    with zipfile.ZipFile(BytesIO(server.archives[newest])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_pull_request_has_one_comment(runner: Runner, server: Server, profiles: Profiles) -> None:
    profiles.now("slow")
    base = runner.run()
    assert base.code == 0, base.printed
    assert "No base to compare with yet" in base.summary
    assert "not checked, as there is no base yet: step_ms<=1.05*baseline" in base.summary
    each = {"report.json", "summary.md", "gap-report.md", "report.sqlite.xz"}
    wanted = {f"{number}/{name}" for number in (1, 2, 3) for name in each}
    assert set(kept(server)) == {*wanted, "comment.md"}
    assert server.comments == []

    first = runner.run(pull_request=5)
    assert "posted a comment" in first.printed
    assert "No significant change" in server.comments[0]["body"]
    profiles.now("fast")
    second = runner.run(pull_request=5)
    assert "updated the comment" in second.printed
    (comment,) = server.comments
    assert comment["body"] == second.summary
    assert "a step takes 17 % less" in second.summary
    assert first.code == second.code == 0, second.printed

    assert server.tokens[-1] == f"Bearer {TOKEN}"
    shown = [second.printed, second.summary, comment["body"], *map(str, server.asked)]
    assert not [text for text in shown if TOKEN in text]
    assert not [name for name, data in kept(server).items() if TOKEN.encode() in data]


def test_a_crossed_budget_fails_the_job(runner: Runner, server: Server, profiles: Profiles) -> None:
    profiles.now("fast")
    runner.run()
    profiles.now("slow")
    job = runner.run(pull_request=5)
    assert list(job.ended) == [step["name"] for step in STEPS]
    assert list(job.ended.values()) == [0] * (len(STEPS) - 1) + [3]
    assert "::error file=nan_check.py,line=125," in job.printed
    assert "crossed: 1 of 1 budget" in server.comments[0]["body"]
    assert "::" not in server.comments[0]["body"]
    assert {"1/report.json", "comment.md", "junit.xml"} <= set(kept(server))


def test_a_failed_program_fails_the_job(runner: Runner, server: Server, profiles: Profiles) -> None:
    profiles.fail()
    job = runner.run(pull_request=5)
    assert job.ended == {"Install nsysflow": 0, "Fetch the base": 0, "Profile": 7}
    assert server.comments == server.artifacts == []


def test_a_comment_that_a_fork_may_not_write_changes_no_verdict(
    runner: Runner, server: Server, profiles: Profiles
) -> None:
    profiles.now("slow")
    server.refuses = frozenset({"POST"})
    job = runner.run(pull_request=5, captures="1", max=FINDING)
    assert job.ended["Comment"] == 1
    assert "403" in job.printed
    assert "pull-requests: write" in job.printed
    assert job.code == 3


def test_a_report_is_a_base(runner: Runner, server: Server, profiles: Profiles, runs: Path) -> None:
    profiles.now("slow")
    job = runner.run(base=str(runs / "fast" / "report.json"), captures="1")
    assert "a step takes 20 % longer" in job.summary
    assert "too noisy" in job.summary
    assert job.code == 4
    assert server.asked == [], "no artifact is looked for"


def test_a_baseline_file_is_a_base(runner: Runner, profiles: Profiles, runs: Path) -> None:
    fast, file = str(runs / "fast" / "report.json"), str(runner.workspace / "baseline.json")
    run("check", fast, "--baseline", file, "--update-baseline")
    profiles.now("slow")
    job = runner.run(base=file, captures="1")
    assert "Checked against a baseline file" in job.summary
    assert "step_ms<=1.05*baseline" in job.summary
    assert job.code == 4


def test_budgets_come_from_the_settings_file_by_default(runner: Runner, profiles: Profiles) -> None:
    (runner.workspace / "nsysflow.toml").write_text(f'[check]\nmax = ["{FINDING}"]\n')
    profiles.now("slow")
    job = runner.run(max="", captures="1")
    assert job.code == 3
    assert FINDING in job.summary


def test_inputs_are_never_run(runner: Runner, server: Server, profiles: Profiles) -> None:
    nasty = "$(touch hacked) `touch hacked` a'b\"c; '; touch hacked; ' \"; touch hacked; \""
    profiles.now("slow")
    command = "python 'a b.py' --name \"$(touch hacked)\" `touch hacked` '*'"
    inputs = dict.fromkeys(("name", "base", "capture"), nasty) | {"captures": "1"}
    inputs |= {"max": f"{nasty}\nstep_ms<=$(touch hacked)", "command": command}
    job = runner.run(pull_request=5, **inputs)
    asked = profiles.asked.split("\n")
    assert asked[asked.index("--capture") + 1] == nasty
    words = ["python", "a b.py", "--name", "$(touch hacked)", "`touch", "hacked`", "*"]
    assert asked[asked.index("--") + 1 :][: len(words)] == words
    assert server.artifacts[0]["name"] == nasty
    assert job.code not in (0, 3, 4), "such budgets and such a base are refused"
    assert not list(runner.temp.parent.rglob("hacked"))


@pytest.mark.parametrize("captures", ["a[$(touch hacked)]", "0", "three"])
def test_a_number_of_captures_is_a_number(runner: Runner, captures: str) -> None:
    job = runner.run(captures=captures)
    assert job.ended["Profile"] == 2
    assert not (runner.workspace / "hacked").exists()


def test_no_expression_stands_in_a_script_and_the_program_does_not_see_the_token() -> None:
    scripts = {step["name"]: step["run"] for step in STEPS if "run" in step}
    assert not [name for name, script in scripts.items() if "${{" in script]
    (profile,) = [step for step in STEPS if step["name"] == "Profile"]
    assert "token" not in str(profile).lower()


def test_actions_of_others_are_pinned_to_a_version() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert not [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", each)]


def test_no_environment_and_no_path_is_kept(tmp_path: Path, machine: dict[str, str]) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "runs").mkdir()
    own = {"TOKEN": TOKEN, "TMPDIR": str(tmp_path / "runs")}
    env = dict(os.environ) | machine | own | {"NSYSFLOW_NSYS": str(real_nsys().path)}
    words = ("2", "--on", "cpu", "--capture", "1:1:4", "--", sys.executable, tmp_path / "loop.py")
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"captures-{attempt}"
        argv = map(str, (ROOT / "action" / "capture.sh", folder, *words))
        done = subprocess.run([*argv], env=env, capture_output=True, text=True, check=False)
        if not nsys_crashed(done.stdout + done.stderr):
            break
    assert done.returncode == 0, done.stderr
    kept = {str(file.relative_to(folder)): file for file in folder.rglob("*.*")}
    names = ("report.json", "summary.md", "gap-report.md", "report.sqlite.xz")
    assert kept.keys() == {f"{number}/{name}" for number in (1, 2) for name in names}
    for file in kept.values():
        data = file.read_bytes()
        text = lzma.decompress(data) if file.suffix == ".xz" else data
        assert TOKEN.encode() not in text, file
        assert str(tmp_path).encode() not in text, file
    assert not list((tmp_path / "runs").glob("nsysflow.*"))
