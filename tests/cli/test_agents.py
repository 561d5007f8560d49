"""`nsysflow mcp`: what it says without its package, or without a folder."""

import subprocess
import sys

from click.testing import CliRunner

from nsysflow.cli.main import main
from tests.reports import ROOT


def test_without_the_package_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; from nsysflow.cli.main import main; main(['mcp'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "nsysflow: the package mcp is not installed. Install it:\n  pip install 'nsysflow[mcp]'\n"
    )


def test_a_folder_that_is_not_there_is_wrong_usage() -> None:
    done = CliRunner().invoke(main, ["mcp", "nowhere"])
    assert done.exit_code == 2
    assert "nowhere" in done.stderr
