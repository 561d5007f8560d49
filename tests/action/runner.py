"""Runs action.yml step by step, as a runner of GitHub does."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.action.forge_server import REPOSITORY, Server
from tests.reports import ROOT

ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
TOKEN: Final = "ghs_notToBeSeen"

_EXPRESSION: Final = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass
class Job:
    """What became of a job.

    Attributes:
        ended: the exit code of each step that ran, by name.
        printed: all that it printed.
        summary: what it wrote into the job's summary.
    """

    ended: dict[str, int] = field(default_factory=dict)
    printed: str = ""
    summary: str = ""

    @property
    def code(self) -> int:
        """The exit code of the last step that ran."""
        return list(self.ended.values())[-1]


@dataclass(kw_only=True)
class Runner:
    """A runner with a checked-out repository.

    Attributes:
        server: plays GitHub.
        workspace: the repository.
        temp: RUNNER_TEMP; a new one for each job.
        env: what its machine sets.
    """

    server: Server
    workspace: Path
    temp: Path
    env: dict[str, str]
    jobs: int = 0

    def run(self, *, pull_request: int | None = None, **inputs: str) -> Job:
        """Run the action as a job, for a pull request or a push to main."""
        self.jobs += 1
        temp = self.temp / str(self.jobs)
        temp.mkdir(parents=True)
        job = Job()
        known = self._context(pull_request, inputs)
        for step in ACTION["runs"]["steps"]:
            code, outputs = self._step(step, known, temp, job, pull_request)
            job.ended[step["name"]] = code
            known |= {f"steps.{step.get('id')}.outputs.{key}": each for key, each in outputs}
            if code and not step.get("continue-on-error"):
                break
        return job

    def _context(self, pull_request: int | None, inputs: dict[str, str]) -> dict[str, str]:
        """The values of expressions."""
        known = {
            "github.token": TOKEN,
            "github.event.pull_request.number": str(pull_request or ""),
            "github.server_url": "https://forge.example",
            "github.repository": REPOSITORY,
            "github.run_id": str(self.jobs),
        }
        defaults = {name: each["default"] for name, each in ACTION["inputs"].items()}
        assert inputs.keys() <= defaults.keys()
        given = {name: filled(str(each), known) for name, each in (defaults | inputs).items()}
        return known | {f"inputs.{name}": each for name, each in given.items()}

    def _step(
        self, step: dict[str, Any], known: dict[str, str], temp: Path, job: Job, number: int | None
    ) -> tuple[int, list[tuple[str, str]]]:
        """Run a step; returns its exit code and its outputs."""
        if "uses" in step:
            given = {name: filled(str(each), known) for name, each in step["with"].items()}
            branch = "feature" if number else "main"
            self.server.keep(given["name"], Path(given["path"]), branch=branch, run=str(self.jobs))
            return 0, []
        script, output, summary = temp / "step.sh", temp / "output", temp / "summary"
        script.write_text(step["run"], encoding="utf-8")
        output.write_text("")
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        own = {name: filled(str(each), known) for name, each in step.get("env", {}).items()}
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        env = self.env | self._variables(number) | {"RUNNER_TEMP": str(temp)} | files | own
        said: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(argv, cwd=self.workspace, env=env, text=True, check=False, **said)
        job.printed += done.stdout
        job.summary = summary.read_text(encoding="utf-8") if summary.exists() else ""
        lines = output.read_text(encoding="utf-8").splitlines()
        return done.returncode, [(key, each) for key, _, each in (x.partition("=") for x in lines)]

    def _variables(self, number: int | None) -> dict[str, str]:
        """What GitHub sets in each step."""
        return {
            "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": self.server.url, "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": str(self.jobs), "GITHUB_BASE_REF": "main" if number else "",
            "GITHUB_REF_NAME": f"{number}/merge" if number else "main",
        }  # fmt: skip


def filled(text: str, known: dict[str, str]) -> str:
    """`text` with the values of its expressions."""
    return _EXPRESSION.sub(lambda found: known[found[1]], text)
