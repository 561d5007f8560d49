import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.action.forge_server import FORK_ID, REPOSITORY, Server, gitlab
from tests.reports import ROOT

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
