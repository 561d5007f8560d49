"""Talk to GitHub or GitLab: keep one comment up to date, fetch the captures of the base branch.

    python3 forge.py comment FILE
    python3 forge.py base FOLDER

`comment` posts FILE to the pull or merge request of this job. If a comment there begins with the
same line as FILE, it is updated. `base` puts the report.json files of the newest captures of the
base branch into FOLDER, which stays empty if there are none. Everything else comes from the
variables of the job: on GitHub also GITHUB_TOKEN, NAME (of the artifact) and PULL_REQUEST, on
GitLab GITLAB_TOKEN. Needs nothing but Python.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from os import environ
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

_MOST_CHARACTERS: Final = 65_000
"""GitHub takes 65,536 in a comment."""

_TIMEOUT_S: Final = 60

_CAPTURE: Final = re.compile(r"(?:.*/)?(\d+)/report\.json")
"""What of an artifact is a capture; the group is its number."""

_NEXT: Final = re.compile(r'<([^>]*)>;\s*rel="next"')

_PERMISSIONS: Final = (
    "On GitHub the job needs `permissions:` with `pull-requests: write` and `actions: read`, which"
    " pull requests of forks do not get; on GitLab GITLAB_TOKEN needs the scope `api`."
)


class Refused(Exception):
    """The forge did not do what was asked. The message says what, and what may help."""


class Nothing(Refused):
    """There is nothing at that address."""


@dataclass(frozen=True, kw_only=True)
class Forge:
    """Where a forge keeps what we need.

    Attributes:
        token: the name of its header, and its value.
        api: the address of the project.
        comments: the comments of the job's pull request; None outside of one.
        comment: where one of them is, by its number.
        update: the method that changes one.
    """

    token: tuple[str, str]
    api: str
    comments: str | None
    comment: str
    update: str

    def call(self, method: str, url: str, body: object = None) -> HTTPResponse:
        """Send a request.

        Raises:
            Nothing: there is nothing at `url`.
            Refused: the forge cannot be reached, or refuses.
        """
        sent = None if body is None else json.dumps(body).encode()
        request = Request(url, sent, {"Content-Type": "application/json"}, method=method)
        request.add_unredirected_header(*self.token)  # artifacts lie on hosts that must not have it
        try:
            response: HTTPResponse = urlopen(request, timeout=_TIMEOUT_S)
        except HTTPError as error:
            with error:
                seen = f"{method} {url}: {error.code} {error.reason}"
            if error.code == 404:
                raise Nothing(f"{seen}. {_PERMISSIONS}") from error
            raise Refused(f"{seen}. {_PERMISSIONS}") from error
        except URLError as error:
            raise Refused(f"{method} {url}: {error.reason}") from error
        return response

    def pages(self, url: str) -> Iterator[Any]:
        """The pages of a list, each as JSON."""
        following: str | None = url
        while following:
            with self.call("GET", following) as response:
                found = _NEXT.search(response.headers.get("Link", ""))
                yield json.load(response)
            following = found[1] if found else None


def variable(name: str) -> str:
    """A variable of the job.

    Raises:
        Refused: it is not set.
    """
    try:
        return environ[name]
    except KeyError:
        raise Refused(f"the variable {name} is not set") from None


def github() -> Forge:
    """The repository of a job of GitHub Actions."""
    api = f"{variable('GITHUB_API_URL')}/repos/{variable('GITHUB_REPOSITORY')}"
    number = environ.get("PULL_REQUEST")
    return Forge(
        token=("Authorization", f"Bearer {variable('GITHUB_TOKEN')}"),
        api=api,
        comments=f"{api}/issues/{number}/comments" if number else None,
        comment=f"{api}/issues/comments",
        update="PATCH",
    )


def gitlab() -> Forge:
    """The project of a job of GitLab CI."""
    api = f"{variable('CI_API_V4_URL')}/projects/{variable('CI_PROJECT_ID')}"
    number = environ.get("CI_MERGE_REQUEST_IID")
    notes = f"{api}/merge_requests/{number}/notes"
    return Forge(
        token=("PRIVATE-TOKEN", variable("GITLAB_TOKEN")),
        api=api,
        comments=notes if number else None,
        comment=notes,
        update="PUT",
    )


def post(forge: Forge, text: str) -> str:
    """Post a comment, or update the one that begins with the same line; returns what was done."""
    if forge.comments is None:
        return "no pull request: no comment"
    marker = text.partition("\n")[0]
    body = {"body": text[:_MOST_CHARACTERS]}
    for page in forge.pages(f"{forge.comments}?per_page=100"):
        for each in page:
            if each["body"].splitlines()[:1] == [marker]:
                forge.call(forge.update, f"{forge.comment}/{each['id']}", body).close()
                return "updated the comment"
    forge.call("POST", forge.comments, body).close()
    return "posted a comment"


def github_artifact(forge: Forge) -> str | None:
    """Where to download the base branch's newest artifact called NAME; None before the first."""
    branch = environ.get("GITHUB_BASE_REF") or variable("GITHUB_REF_NAME")

    def is_of_base(artifact: Any) -> bool:  # JSON
        run = artifact["workflow_run"]
        return (
            not artifact["expired"]
            and run["head_branch"] == branch
            and run["head_repository_id"] == run["repository_id"]  # a fork may have a main, too
            and str(run["id"]) != variable("GITHUB_RUN_ID")  # nor an earlier try of this job
        )

    name = quote(variable("NAME"), safe="")
    for page in forge.pages(f"{forge.api}/actions/artifacts?name={name}&per_page=100"):
        found = [each for each in page["artifacts"] if is_of_base(each)]
        if found:
            return str(max(found, key=lambda each: each["created_at"])["archive_download_url"])
    return None


def gitlab_artifact(forge: Forge) -> str:
    """Where to download what this job kept last on the target branch. GitLab says 404 if it never
    ran there."""
    target = environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    branch = quote(target or variable("CI_COMMIT_REF_NAME"), safe="")
    job = quote(variable("CI_JOB_NAME"), safe="")
    return f"{forge.api}/jobs/artifacts/{branch}/download?job={job}"


def fetch(forge: Forge, archive: str | None, folder: Path) -> str:
    """Unpack the captures of an artifact; returns what was done."""
    folder.mkdir(parents=True, exist_ok=True)
    if archive is None:
        return "no base yet"
    try:
        with forge.call("GET", archive) as response:
            packed = zipfile.ZipFile(io.BytesIO(response.read()))
    except Nothing:
        return "no base yet"
    captures = [found for name in packed.namelist() if (found := _CAPTURE.fullmatch(name))]
    for found in captures:
        kept = folder / found[1] / "report.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(packed.read(found[0]))
    return f"fetched {len(captures)} captures of the base"


def main() -> None:
    """Do what was typed."""
    task, path = sys.argv[1], Path(sys.argv[2])
    on_gitlab = "GITLAB_CI" in environ
    try:
        forge = gitlab() if on_gitlab else github()
        if task == "comment":
            done = post(forge, path.read_text(encoding="utf-8"))
        else:
            archive = gitlab_artifact(forge) if on_gitlab else github_artifact(forge)
            done = fetch(forge, archive, path)
    except (Refused, OSError) as error:
        sys.exit(f"forge.py: {error}")
    sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    main()
