"""Backtraces make nsys lose the events of JAX, so its programs get none by default."""

from pathlib import Path

import pytest

from nsysflow.profiling.jax_programs import without_backtraces_of_jax
from nsysflow.profiling.request import Request

ASKED = Request(command=("python", "train.py", "--lr", "1"), name="train", folder=Path("out"))


@pytest.fixture(autouse=True)
def inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "text", ["import jax\n", "def f():\n    from jax import numpy\n", "import flax.linen as nn\n"]
)
def test_a_script_that_imports_jax_gets_no_backtraces_and_a_note(text: str) -> None:
    Path("train.py").write_text(text)
    request, (note,) = without_backtraces_of_jax(ASKED)
    assert request.backtrace == "none"
    assert note.startswith("train.py imports JAX")
    assert "--backtrace waits" in note


def test_what_was_asked_for_is_done() -> None:
    Path("train.py").write_text("import jax\n")
    asked = Request(command=ASKED.command, name="train", folder=Path("out"), backtrace="waits")
    assert without_backtraces_of_jax(asked) == (asked, ())


@pytest.mark.parametrize("text", ["import torch\n", "import jaxtyping\n", "# import jax\n"])
def test_other_scripts_keep_the_default(text: str) -> None:
    Path("train.py").write_text(text)
    assert without_backtraces_of_jax(ASKED) == (ASKED, ())


def test_without_a_script_to_look_at_the_default_stays() -> None:
    assert without_backtraces_of_jax(ASKED) == (ASKED, ())
    module = Request(command=("python", "-m", "train"), name="train", folder=Path("out"))
    assert without_backtraces_of_jax(module) == (module, ())
