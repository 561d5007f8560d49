"""A server that answers as GitHub and GitLab do, and remembers what it was asked."""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "octo/train"
OWN_ID, FORK_ID = 7, 8
"""Ids of the repository, and of a fork of it."""

PER_PAGE = 2
"""So few that a test needs no long lists."""


@dataclass
class Server:
    """What a forge holds, and the requests it got.

    Attributes:
        url: its address.
        asked: method and path of each request.
        tokens: the token of each request that had one.
        comments: those of the one pull request, each with id and body.
        artifacts: as GitHub lists them, the newest first.
        archives: the zip files, by path. They refuse a token, as they lie on another host.
        moved: where an address leads, beside those of `artifacts`.
        refuses: methods that it answers with 403.
    """

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    archives: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset()

    def keep(
        self, name: str, folder: Path, *, branch: str, run: str = "1", repository: int = OWN_ID
    ) -> None:
        """Take a folder as an artifact of a run, as actions/upload-artifact does."""
        number = len(self.artifacts) + 1
        path = f"/stored/{number}"
        self.archives[path] = zipped(folder)
        of_run = {"id": int(run), "head_branch": branch}
        of_run |= {"repository_id": OWN_ID, "head_repository_id": repository}
        artifact = {
            "id": number, "name": name, "expired": False, "workflow_run": of_run,
            "created_at": f"2026-11-22T00:00:{number:02d}Z",
            "archive_download_url": f"{self.url}/moved{path}",
        }  # fmt: skip
        self.artifacts.insert(0, artifact)


def gitlab(server: Server) -> dict[str, str]:
    """The variables of a job of GitLab for a merge request."""
    return {
        "GITLAB_CI": "true", "CI_API_V4_URL": server.url, "CI_PROJECT_ID": "12",
        "CI_MERGE_REQUEST_IID": "5", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "release/1",
        "CI_COMMIT_REF_NAME": "feature", "CI_JOB_NAME": "gpu step", "GITLAB_TOKEN": "secret",
    }  # fmt: skip


def zipped(folder: Path) -> bytes:
    """The files of a folder as a zip file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            archive.write(file, file.relative_to(folder))
    return packed.getvalue()


@contextmanager
def serving() -> Iterator[Server]:
    """A server that runs meanwhile."""
    server = Server()

    class Handler(_Handler):
        state = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Server

    def _answer(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        self.state.asked.append((self.command, self.path))
        token = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN")
        self.state.tokens += [token] if token else []
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command in self.state.refuses:
            self.send_error(403)
        elif path.startswith("/moved"):
            self._redirect(path.removeprefix("/moved"))
        elif self.path in self.state.moved:
            self._redirect(self.state.moved[self.path])
        elif path in self.state.archives and not token:
            self._send(self.state.archives[path])
        elif path.endswith("/actions/artifacts"):
            named = [each for each in self.state.artifacts if each["name"] == query["name"][0]]
            self._send_page(named, query, lambda page: {"artifacts": page})
        elif path.endswith(("/comments", "/notes")) and self.command == "GET":
            self._send_page(self.state.comments, query, lambda page: page)
        elif path.endswith(("/comments", "/notes")) and self.command == "POST":
            number = len(self.state.comments) + 1
            self.state.comments.append({"id": number, **json.loads(sent)})
            self._send(b"{}")
        elif self.command in ("PATCH", "PUT"):
            (one,) = [each for each in self.state.comments if path.endswith(f"/{each['id']}")]
            one.update(json.loads(sent))
            self._send(b"{}")
        else:
            self.send_error(404)

    do_GET = do_POST = do_PATCH = do_PUT = _answer  # the names of http.server

    def _redirect(self, path: str) -> None:
        # another name of the same machine, as artifacts lie elsewhere
        self.send_response(302)
        self.send_header("Location", self.state.url.replace("127.0.0.1", "localhost") + path)
        self.end_headers()

    def _send_page(self, listed: list[Any], query: dict[str, list[str]], shaped: Any) -> None:
        number = int(query.get("page", ["1"])[0])
        following = f"{self.state.url}{self.path.split('&page=')[0]}&page={number + 1}"
        more = len(listed) > number * PER_PAGE
        page = listed[(number - 1) * PER_PAGE : number * PER_PAGE]
        self._send(json.dumps(shaped(page)).encode(), f'<{following}>; rel="next"' if more else "")

    def _send(self, body: bytes, link: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
