import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml

from tests.action.conftest import Profiles
from tests.action.forge_server import FORK_ID, REPOSITORY, Server, gitlab, zipped
from tests.action.runner import ACTION
from tests.reports import ROOT
from tests.shown import FENCED

Forge: TypeAlias = Callable[[Server], dict[str, str]]
"""The variables of a job there."""

MARKER = "<!-- nsysflow diff train -->"


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A folder with two captures, and what is none."""
    folder = tmp_path / "captures"
    for name in ("1/report.json", "2/report.json", "2/summary.md", "report.json", "x/report.json"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(name))
    return folder


def github(server: Server) -> dict[str, str]:
    return {
        "GITHUB_API_URL": server.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_RUN_ID": "99",
        "GITHUB_BASE_REF": "main", "GITHUB_REF_NAME": "5/merge", "GITHUB_TOKEN": "secret",
        "NAME": "train", "PULL_REQUEST": "5",
    }  # fmt: skip


def forge(env: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, ROOT / "action" / "forge.py", *arguments]
    here = env | {"NO_PROXY": "*"}
    return subprocess.run(argv, env=here, capture_output=True, text=True, check=False)


def commented(env: dict[str, str], folder: Path, text: str) -> str:
    """What is said when this is posted."""
    file = folder / "comment.md"
    file.write_text(text, encoding="utf-8")
    done = forge(env, "comment", file)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("of", [github, gitlab])
def test_a_comment_is_posted_once_then_updated(of: Forge, server: Server, tmp_path: Path) -> None:
    server.comments = [{"id": number, "body": f"> {MARKER}"} for number in (1, 2, 3)]
    env = of(server)
    assert commented(env, tmp_path, f"{MARKER}\none") == "posted a comment\n"
    assert commented(env, tmp_path, f"{MARKER}\ntwo “é”") == "updated the comment\n"
    bodies = [each["body"] for each in server.comments]
    assert bodies == [f"> {MARKER}"] * 3 + [f"{MARKER}\ntwo “é”"]
    changed = {method for method, _ in server.asked} - {"GET"}
    assert changed == ({"POST", "PUT"} if of is gitlab else {"POST", "PATCH"})


def test_another_job_has_its_own_comment_cut_where_too_long(server: Server, tmp_path: Path) -> None:
    commented(github(server), tmp_path, "<!-- nsysflow diff a -->\nof a")
    commented(github(server), tmp_path, "<!-- nsysflow diff b -->\n" + "x" * 100_000)
    first, second = (each["body"] for each in server.comments)
    assert first.endswith("of a")
    assert 60_000 < len(second) < 65_536


def test_the_base_is_the_newest_artifact(server: Server, tmp_path: Path, captures: Path) -> None:
    server.keep("train", captures, branch="main")
    (captures / "1" / "report.json").write_text("newer")
    server.keep("train", captures, branch="main")
    (captures / "1" / "report.json").write_text("not of main")
    server.keep("train", captures, branch="feature")
    server.keep("train", captures, branch="main", repository=FORK_ID)
    server.keep("train", captures, branch="main", run="99")
    server.keep("other", captures, branch="main")
    server.keep("train", captures, branch="main")
    server.artifacts[0]["expired"] = True
    done = forge(github(server), "base", tmp_path / "base")
    assert done.stdout == "fetched 2 captures of the base\n", done.stderr
    assert (tmp_path / "base" / "1" / "report.json").read_text() == "newer"
    found = {str(each.relative_to(tmp_path / "base")) for each in (tmp_path / "base").rglob("*.*")}
    assert found == {"1/report.json", "2/report.json"}


def test_the_base_of_gitlab_is_the_artifact_of_this_job_on_the_target_branch(
    server: Server, tmp_path: Path, captures: Path
) -> None:
    server.keep("train", captures.parent, branch="")
    address = "/projects/12/jobs/artifacts/release%2F1/download?job=gpu%20step"
    server.moved[address] = "/stored/1"
    done = forge(gitlab(server), "base", tmp_path / "base")
    assert done.stdout == "fetched 2 captures of the base\n", done.stderr
    assert (tmp_path / "base" / "1" / "report.json").exists()


@pytest.mark.parametrize("of", [github, gitlab])
def test_without_an_artifact_the_base_is_empty(of: Forge, server: Server, tmp_path: Path) -> None:
    done = forge(of(server), "base", tmp_path / "base")
    assert done.stdout == "no base yet\n"
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.parametrize(
    ("of", "task", "unset", "said"),
    [
        (github, "base", "", ["403", "actions: read"]),
        (github, "base", "GITHUB_TOKEN", ["forge.py: the variable GITHUB_TOKEN is not set"]),
        (github, "comment", "", ["No such file"]),
    ],
)
def test_an_error_is_a_message_that_holds_no_token(
    of: Forge, task: str, unset: str, said: list[str], server: Server, tmp_path: Path
) -> None:
    server.refuses = frozenset({"GET"})
    env = {name: value for name, value in of(server).items() if name != unset}
    done = forge(env, task, tmp_path / "file")
    assert (done.returncode, done.stdout) == (1, "")
    assert all(part in done.stderr for part in said)
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


PAGE: Final = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS: Final = FENCED.findall(PAGE)
WORKFLOW, PIPELINE = (yaml.safe_load(body) for language, body in BLOCKS if language == "yaml")
GOOD, NIGHTLY = (body for language, body in BLOCKS if language == "sh")

Bash = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def bash(tmp_path: Path, machine: dict[str, str], fakes: Path, server: Server) -> Bash:
    """Runs a script in one folder, on a machine that reaches GitLab; `git clone` there brings this
    repository."""
    git = fakes / "git"
    git.write_text(
        f'#!/bin/sh\n[ "$1" != clone ] || {{ mkdir "$5" && ln -s "{ROOT}/action" "$5"; }}\n'
    )
    git.chmod(0o755)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = machine | gitlab(server) | {
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_JOB_NAME": "step-time",
        "CI_JOB_URL": "https://forge.example/jobs/1",
        "NSYSFLOW_REPOSITORY": "https://forge.example/nsysflow.git",
    }  # fmt: skip

    def run(script: str) -> subprocess.CompletedProcess[str]:
        argv, out = ["bash", "-eo", "pipefail", "-c", script], subprocess.PIPE
        said: dict[str, Any] = {"stdout": out, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(argv, cwd=workspace, env=env, check=False, **said)

    return run


def gitlab_job(part: str) -> str:
    """A part of the GitLab job as a script, with the job's variables."""
    job = PIPELINE["step-time"]
    variables = [f'export {name}="{value}"' for name, value in job["variables"].items()]
    return "\n".join([*variables, *job[part]])


def test_the_workflow_is_short_and_uses_the_action_as_it_is() -> None:
    assert len(next(body for language, body in BLOCKS if language == "yaml").splitlines()) <= 16
    (job,) = WORKFLOW["jobs"].values()
    checkout, ours = job["steps"]
    assert re.fullmatch(r"actions/checkout@v\d+\.\d+\.\d+", checkout["uses"])
    assert ours["with"].keys() <= ACTION["inputs"].keys()
    needed = {"actions": "read", "contents": "read", "pull-requests": "write"}
    assert WORKFLOW["permissions"] == needed


def test_every_input_has_a_sentence_and_stands_on_the_page_with_its_default() -> None:
    for name, declared in ACTION["inputs"].items():
        assert declared["description"].endswith("."), name
        default = {"token": "the job's", "base": ""}.get(name, f"`{declared['default']}`")
        assert re.search(rf"^\| `{name}` \| {re.escape(default)} ?\| ", PAGE, re.MULTILINE), name


@pytest.mark.long
def test_the_gitlab_job_keeps_one_note_and_what_it_promises(
    bash: Bash, server: Server, profiles: Profiles, tmp_path: Path
) -> None:
    (tmp_path / "artifact").mkdir()
    profiles.now("fast")
    assert bash(gitlab_job("before_script")).returncode == 0
    first = bash(gitlab_job("script"))
    assert first.returncode == 0, first.stdout
    assert "posted a comment" in bash(gitlab_job("after_script")).stdout

    (tmp_path / "workspace" / "new").rename(tmp_path / "artifact" / "new")
    server.archives["/stored/1"] = zipped(tmp_path / "artifact")
    server.moved["/projects/12/jobs/artifacts/main/download?job=step-time"] = "/stored/1"
    bash("rm -r base")
    profiles.now("slow")
    second = bash(gitlab_job("script"))
    assert second.returncode == 3, second.stdout
    assert "updated the comment" in bash(gitlab_job("after_script")).stdout
    (note,) = server.comments
    assert "a step takes 20 % longer" in note["body"]
    assert "(https://forge.example/jobs/1)" in note["body"]
    artifacts: dict[str, Any] = PIPELINE["step-time"]["artifacts"]
    assert artifacts["when"] == "always"
    for path in (*artifacts["paths"], *artifacts["reports"].values()):
        assert bash(f"test -e {path}").returncode == 0, path
