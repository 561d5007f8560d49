"""A trial shows what this nsys can do here, whatever its version."""

import re
from pathlib import Path

import pytest

from nsysflow.nsys import importer_problem
from nsysflow.nsys.trial import RANGE, may_sample, try_nsys
from tests.exports import write_export
from tests.nsys.fakes import an_nsys, script
from tests.nsys.real import real_nsys


def recording(folder: Path, *ranges: str) -> Path:
    """A program that makes a report, and exports one that holds these ranges."""
    folder.mkdir()
    write_export(folder / "export.sqlite", kernels=[{}], nvtx=[{"text": name} for name in ranges])
    return script(
        folder / "nsys",
        f"""
        for option in "$@"; do case $option in --output=*) out=${{option#--output=}};; esac; done
        case $1 in
            profile) touch "$out.nsys-rep";;
            export) cp "{folder}/export.sqlite" "$out";;
        esac""",
    )


@pytest.mark.parametrize(
    ("ranges", "arrived"), [((RANGE,), True), (("step", RANGE), True), (("step",), False)]
)
def test_ranges_are_recorded_if_that_of_the_trial_is(
    ranges: tuple[str, ...], arrived: bool, tmp_path: Path
) -> None:
    trial = try_nsys(an_nsys(recording(tmp_path / "bin", *ranges)))
    assert (trial.problem, trial.ranges) == (None, arrived)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo 'The importer was not found.'; exit 1", "ended with 1 .*importer was not found"),
        ("exit 0", "ended with 0 and no report; nsys said: nothing"),
        ('[ $1 = profile ] && touch "${2#--output=}.nsys-rep"', "ended with 1 and said: nothing"),
        (
            r"printf '[1/1] [==12%%  ] r\r[1/1] [==98%%  ] r\nNo space left\n'; exit 1",
            "nsys said: No space left$",
        ),
    ],
    ids=["fails", "records nothing", "exports nothing", "draws bars"],
)
def test_a_failed_trial_quotes_nsys(body: str, problem: str, tmp_path: Path) -> None:
    nsys = script(tmp_path / "nsys", body)
    found = try_nsys(an_nsys(nsys)).problem
    assert found is not None
    assert re.search(problem, found)


def test_an_nsys_that_does_not_start_fails_the_trial(tmp_path: Path) -> None:
    nsys = script(tmp_path / "nsys", "exit 0")
    nsys.write_text("#!/no/such/shell\n")
    assert "does not start: No such file or directory" in (try_nsys(an_nsys(nsys)).problem or "")


def test_one_success_in_several_attempts_is_enough(tmp_path: Path) -> None:
    good = recording(tmp_path / "bin", RANGE)
    once = f'[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; exit 1; }}; exec {good} "$@"'
    assert try_nsys(an_nsys(script(tmp_path / "nsys", once))).problem is None


@pytest.mark.parametrize(
    ("said", "may"),
    [
        ("CPU Profiling Environment (process-tree): OK\nEnvironment (system-wide): Fail", True),
        ("CPU Profiling Environment (process-tree): Fail", False),
        ("something new", None),
    ],
)
def test_nsys_says_whether_it_may_sample(said: str, may: bool | None, tmp_path: Path) -> None:
    nsys = script(tmp_path / "nsys", f"echo '{said}'")
    assert may_sample(an_nsys(nsys)) is may


def test_a_real_nsys_records_the_range_of_a_trial() -> None:
    nsys = real_nsys()
    assert importer_problem(nsys) is None
    trial = try_nsys(nsys)
    assert trial.problem is None
    assert trial.ranges  # with the nvtx that the tests install


def test_a_real_nsys_says_whether_it_may_sample_and_names_its_options() -> None:
    nsys = real_nsys()
    assert may_sample(nsys) is not None
    assert {"--output", "--trace", "--sample", "--cuda-graph-trace", "--type"} <= nsys.options
    assert {"--gpu-metrics-device", "--gpu-metrics-devices"} & nsys.options
