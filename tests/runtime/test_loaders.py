"""The times of DataLoaders and their workers, in a program as `nsysflow profile` starts it."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.runtime import inject, protocol
from nsysflow.runtime.loaders import Loaders, Requests, Results, WorkerTimes, worker_file

pytest.importorskip("torch")

PROGRAM: Final = """
import os, signal, sys, time, torch, multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Numbers(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i): time.sleep(0.001); return torch.ones(4) * i

class Stream(IterableDataset):
    def __iter__(self): yield from map(Numbers().__getitem__, range(48))

def main(data, workers, context, persistent, how):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data(), 8, num_workers=workers, multiprocessing_context=context,
                        persistent_workers=persistent)
    seen = 0
    try:
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
                seen += 1
                if how and seen == 5: time.sleep(0.5)  # the workers fetch what was asked for
                if how == "exit" and seen == 6: sys.exit(3)
                if how == "kill" and seen == 6:
                    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
                    time.sleep(5)  # torch raises its error here, once it is told
    except RuntimeError as error:
        assert how == "kill", error

if __name__ == "__main__":
    main(HOW)
"""


def recorded(folder: Path, how: str, *, status: int = 0) -> list[dict[str, Any]]:
    """What the trace of torch.profiler says of the loaders of the program."""
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("HOW", how), encoding="utf-8")
    run = folder / "run"
    run.mkdir()
    root = Path(__file__).parents[2]
    more = {
        protocol.COLLECTOR: "kineto",
        protocol.CAPTURE: "1:1:50",
        protocol.RUN_FOLDER: str(run),
        protocol.ANNOTATE: "1",
        "PYTHONPATH": os.pathsep.join((str(Path(inject.__file__).parent), str(root))),
    }
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, **more}, timeout=120, check=False
    )
    assert done.returncode == status
    assert not [*run.glob("loader-*")]
    with gzip.open(next(run.glob("*.json.gz")), "rt") as file:
        told = json.load(file)[protocol.KEY]
    for function, line, loader, samples, of, streams in told.get(protocol.WORKER_CODE, ()):
        assert (function, line.rpartition(":")[0], loader) == ("__getitem__", "program.py", 0)
        assert 0 < samples <= of
        assert streams == how.startswith("Stream")
    return [about for _, about in told["loaders"]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "status", "workers", "fewest"),
    [
        ('Numbers, 2, "fork", False, ""', 0, {0, 1}, 18),
        ('Stream, 2, "spawn", True, ""', 0, {0, 1}, 18),
        ('Numbers, 2, "fork", False, "exit"', 3, {0, 1}, 2),
        ('Numbers, 2, "fork", False, "kill"', 0, {0, 1}, 2),
        ('Numbers, 0, None, False, ""', 0, set(), 0),
    ],
)
def test_workers_leave_their_times_and_no_file(
    how: str, status: int, workers: set[int], fewest: int, tmp_path: Path
) -> None:
    told = recorded(tmp_path, how, status=status)
    batches = [batch for about in told for batch in about["batches"]]
    waits = [wait for about in told for wait in about["waits"]]
    assert {worker for worker, *_ in batches} == workers
    assert len(batches) >= fewest
    assert all(got <= fetched <= sent for _, got, fetched, sent in batches)
    assert waits
    assert all(asked < had for asked, had in waits)
    assert {tuple(about["loader"][:3]) for about in told} == {(0, 2 * bool(workers), 8)}


class Queue:
    """A queue that sends what is put at once, or with `buffered` when it is told to."""

    def __init__(self, *items: object, buffered: bool = True) -> None:
        self.items, self.unsent = [*items], list[object]()
        if buffered:
            self._send_bytes = lambda _: None

    def get(self, timeout: float) -> object:
        return self.items.pop(0)

    def put(self, item: object) -> None:
        self.unsent.append(item)


@pytest.mark.parametrize("buffered", [True, False])
def test_only_requests_for_batches_have_times(buffered: bool, tmp_path: Path) -> None:
    times = WorkerTimes(worker_file(str(tmp_path), 7))
    queue = Queue((0, [1]), "resume", (1, [2]), None, buffered=buffered)
    requests, results = Requests(queue, times), Results(queue, times)
    for _ in range(3):
        requests.get(timeout=5)
        results.put("batch")
    assert requests.get(timeout=5) is None
    assert (len(queue.items), len(queue.unsent)) == (0, 3)
    for _ in range(3 if buffered else 0):
        queue._send_bytes(b"")  # type: ignore[no-untyped-call]
    assert (tmp_path / "loader-7.bin").stat().st_size == 2 * 24


def test_what_was_before_a_recording_is_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(protocol.RUN_FOLDER, str(tmp_path))
    loaders, told = Loaders(), list[dict[str, Any]]()
    run = loaders.opened(type("Loader", (), {"num_workers": 1})())
    times = WorkerTimes(worker_file(str(tmp_path), 7))
    run.know([7])

    def keep(_clock_ns: int, text: str) -> None:
        told.append(json.loads(text))

    for number in range(3):
        times.got((number, []))
        times.fetched()
        times.sent()
        if number == 1:
            loaders.waited(run, 0, 1)
            loaders.begin(keep)
            loaders.waited(run, 1, 2)
    loaders.end(keep)
    (about,) = told
    assert (len(about["batches"]), about["waits"]) == (1, [[1, 2]])
    loaders.closed(run)
    assert not [*tmp_path.iterdir()]
