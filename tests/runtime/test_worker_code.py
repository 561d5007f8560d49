"""What workers of DataLoaders run: samples in a worker, and what its loop notes of them."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from nsysflow.runtime import loaders as loaders_module
from nsysflow.runtime import protocol, worker_code
from nsysflow.runtime.loaders import Loaders, code_file
from nsysflow.runtime.worker_code import WorkerSampler, code_of, counted, row_of

HERE = Path(__file__).name


def decode(until: Callable[[], bool]) -> None:
    """The code of a worker, which calls a library."""
    while not until():
        sorted([3, 1, 2], key=lambda number: json.loads(str(number)))


def test_a_worker_counts_the_lines_of_the_program_while_it_makes_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_code, "PERIOD_S", 0.001)
    monkeypatch.setattr(worker_code, "FLUSH_S", 0.01)
    busy = threading.Event()
    file = tmp_path / "code"
    WorkerSampler(file, busy.is_set)
    time.sleep(0.05)
    assert file.stat().st_size == 0  # it waits for a request
    busy.set()
    decode(lambda: file.stat().st_size > 0)
    busy.clear()
    functions = {function for function, _ in counted(file.read_bytes())}
    assert functions & {"decode", "<lambda>"}
    assert all(line.startswith(f"{HERE}:") for _, line in counted(file.read_bytes()))


def test_code_without_any_of_the_program_is_that_of_the_library() -> None:
    frames = [sys._getframe()]
    json.loads("[1]", object_hook=None, parse_int=lambda _: frames.append(sys._getframe()))
    own, called = map(code_of, frames)
    assert own[0] == "test_code_without_any_of_the_program_is_that_of_the_library"
    assert called[0] == "<lambda>"
    in_library: list[Any] = []

    class Decoder(json.JSONDecoder):
        def decode(self, *args: Any, **kwargs: Any) -> Any:
            return in_library.append(sys._getframe().f_back)

    json.loads("[1]", cls=Decoder)
    assert code_of(in_library[0])[0] == own[0]  # json.loads, called by the program


def test_a_forked_worker_does_not_run_the_loop_of_the_program_around_it() -> None:
    """Its stack is that of the process it was forked from, with its own code in it."""
    site = "/env/lib/site-packages"
    calls = (
        ("torch/utils/data/_utils/worker.py", "_worker_loop", "Photos.__getitem__"),
        ("vision/photos.py", "Photos.__getitem__", "Crop.forward"),
        ("vision/crops.py", "Crop.forward", "convert"),
        ("imaging/image.py", "convert", "look"),
    )
    frames: list[Any] = []
    known: dict[str, Any] = {"look": lambda: frames.append(sys._getframe(1))}
    for file, name, calls_next in reversed(calls):
        source = f"\ndef made(): known[{calls_next!r}]()"
        within: dict[str, Any] = {"known": known}
        exec(compile(source, f"{site}/{file}", "exec"), within)
        code = within["made"].__code__.replace(co_name=name.rpartition(".")[2], co_qualname=name)
        known[name] = FunctionType(code, within)
    known["_worker_loop"]()
    here = sys._getframe()
    assert code_of(frames[0], here) == ("Crop.forward", "vision/crops.py:2")
    assert code_of(frames[0].f_back.f_back.f_back, here) == (
        "_worker_loop",
        "torch/utils/data/_utils/worker.py:2",
    )
    assert code_of(frames[0])[0] == here.f_code.co_name  # all of the stack
    assert code_of(here, here)[1].startswith(HERE)  # nothing runs yet


def test_the_function_with_most_samples_counts_by_its_most_frequent_line() -> None:
    lines = [[["decode", "d.py:4", 3], ["crop", "d.py:9", 4]], [["decode", "d.py:5", 2]]]
    written = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    counts = counted(written + b'[["decode", "d.\n')  # the disk was full
    assert counts == Counter(
        {("decode", "d.py:4"): 3, ("crop", "d.py:9"): 4, ("decode", "d.py:5"): 2}
    )
    for streams in (False, True):
        row = ("decode", "d.py:4", 7, 5, 9, int(streams))
        assert row_of(7, counts, streams=streams) == row


@pytest.mark.parametrize("streams", [False, True])
def test_the_loop_s_process_notes_what_all_workers_run(
    *, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(loaders_module, "note_seen", lambda kind, rows: noted.append((kind, rows)))
    monkeypatch.setenv(protocol.RUN_FOLDER, str(tmp_path))
    loaders = Loaders()
    run = loaders.opened(type("Loader", (), {"num_workers": 2, "_dataset_kind": int(streams)})())
    run.know([7, 8])
    paths = [code_file(str(tmp_path), pid) for pid in (7, 8)]
    written = [path.open("a", buffering=1) for path in paths]
    for file in written:
        file.write('[["early", "d.py:1", 9]]\n')
    loaders.begin(lambda *_: None)
    assert not any(path.exists() for path in paths)
    written[0].write('[["decode", "d.py:4", 3]]\n[["decode", ')  # it writes while we read
    written[0].flush()
    written[1].write('[["crop", "d.py:9", 2]]\n')
    loaders._flush(run)
    written[0].write('"d.py:4", 4]]\n')
    loaders.closed(run)
    loaders._flush(run)  # nothing is new
    for file in written:
        file.close()
    rows = [("decode", "d.py:4", 0, 3, 5), ("decode", "d.py:4", 0, 7, 9)]
    assert noted == [(protocol.WORKER_CODE, [(*row, streams)]) for row in rows]
