import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.action.conftest import Profiles
from tests.action.forge_server import Server, gitlab, zipped
from tests.action.runner import ACTION
from tests.reports import ROOT
from tests.shown import FENCED

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


def test_every_input_stands_on_the_page_with_its_default() -> None:
    for name, declared in ACTION["inputs"].items():
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
