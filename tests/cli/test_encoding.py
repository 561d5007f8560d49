"""A page comes out whole where standard output cannot take the characters it draws with."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest


def demo(environment: Mapping[str, str]) -> "subprocess.CompletedProcess[bytes]":
    """`nsysflow demo` where these variables are set."""
    code = "from nsysflow.cli.main import main; main(['demo'], prog_name='nsysflow')"
    ours = {name: held for name, held in os.environ.items() if not name.startswith("LC_")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**ours, **environment}, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("environment", "encoding"),
    [
        ({"PYTHONIOENCODING": "latin-1"}, "latin-1"),
        ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}, "ascii"),
    ],
)
def test_a_page_is_the_same_but_for_letters_that_standard_output_lacks(
    environment: Mapping[str, str], encoding: str
) -> None:
    done = demo(environment)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode(encoding)
    whole = demo({"PYTHONIOENCODING": "utf-8"}).stdout.decode()
    assert len(shown) == len(whole)
    other = {(drawn, letter) for drawn, letter in zip(whole, shown, strict=True) if drawn != letter}
    assert len(other) == len({letter for _, letter in other}) > 0
    assert all(not drawn.isascii() and letter in "#=+.-~" for drawn, letter in other)
