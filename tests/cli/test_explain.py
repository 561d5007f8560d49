"""`nsysflow explain`: a finding in full, a help page on a name, and what it refuses.

tests/report/test_real_pages.py runs every command that the page of a finding ends with.
"""

import re
import shlex
from pathlib import Path

import pytest

import nsysflow
from nsysflow.report.explain.names import names_by_kind
from tests.cli.running import refused, run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

REPORT = SAMPLES / "nan_check-sync.sqlite.xz"


def explained(*words: str | Path) -> str:
    """The page, with each command on one line."""
    return run("explain", *words).stdout.replace(" \\\n     ", "")


@pytest.mark.slow
def test_each_command_of_a_help_page_is_one_that_there_is() -> None:
    names = [*names_by_kind()["causes"], *names_by_kind()["tables"], "gap"]
    commands = set()
    for name in names:
        shown = re.findall(r"^  nsysflow (analyze .*)$", explained(name), re.MULTILINE)
        assert shown, name
        commands.update(shown)
    for command in sorted(commands):
        run(*shlex.split(command.replace("REPORT", shlex.quote(str(REPORT)))))


def test_settings_of_analyze_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsysflow.toml").write_text('[analyze]\nstep = "forward"\nskip = 0\n')
    monkeypatch.chdir(tmp_path)
    assert "--step forward --skip 0" in explained("1", REPORT)
    assert "no run of nsysflow profile is in this folder" in refused("explain", "1", code=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("snyc",), "nothing is called 'snyc'. Did you mean sync"),
        (("quark",), "nothing is called 'quark'. See what there is: nsysflow explain"),
        (("99", REPORT), "has no finding 99. Its "),
        (("0", REPORT), "has no finding 0"),
        (("sync", REPORT), "sync needs no REPORT: nsysflow explain sync"),
        ((REPORT,), f"nsysflow explain 1 {REPORT}"),
    ],
    ids=str,
)
def test_an_unknown_name_is_refused_with_advice(words: tuple[str | Path, ...], said: str) -> None:
    assert said in refused("explain", *words)


def test_a_finding_of_several_ranks_is_explained_in_its_own_report() -> None:
    ranks = [SAMPLES / f"ddp-no_overlap-rank{rank}.sqlite.xz" for rank in (0, 1)]
    for number, report in enumerate(nsysflow.analyze(ranks).findings["report"][:2], start=1):
        shown = explained(str(number), *ranks)
        assert f" in {report} · " in shown
        assert f"nsysflow analyze {SAMPLES / report}.sqlite.xz --table " in shown.replace("'", "")
