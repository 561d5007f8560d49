"""Commands as tests type them, in this process."""

from pathlib import Path

from click.testing import CliRunner, Result

from nsysflow.cli.main import main


def run(*words: str | Path, code: int = 0) -> Result:
    """`nsysflow` with these words, which ends with this exit code; a bug keeps its traceback."""
    done = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def refused(*words: str | Path, code: int = 2) -> str:
    """What it says on stderr as it ends so and prints nothing, with single spaces."""
    done = run(*words, code=code)
    assert done.stdout == ""
    return " ".join(done.stderr.split())
