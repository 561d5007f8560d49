"""The real reports that tests read."""

import io
import lzma
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
DATA: Final = ROOT / "tests" / "data"
SAMPLES: Final = ROOT / "samples"
SQLITE_REPORTS: Final = sorted([*DATA.glob("*.sqlite.xz"), *SAMPLES.glob("*.sqlite.xz")])


PACKED: Final = {path.name.removesuffix(".sqlite.xz"): path for path in SQLITE_REPORTS}
"""By name."""

KINDS: Final = (
    "h200-ddp-rank0",  # communication
    "h200-gpu-metrics",  # sampled counters
    "h200-graph-level",  # graphs traced whole
    "h200-hf-trainer",  # Python samples
    "h200-nvtx-domain",  # domains with registered strings
    "h200-train",  # no window: start-up inside; backward launched by another thread
    "nan_check-sync",  # a window of steps, with the Python line of each call
    "synthetic-1",  # generated, as no program makes it: three processes on three GPUs
    "synthetic-3",  # the same, and an operation of zero length outside its device's window
)
"""One of each kind of report."""

RULES: Final = (
    *KINDS,
    "h200-accumulation",
    *("h200-bottlenecks", "h200-nchw", "h200-unfused-attention"),
    *("h2d-pageable_non_blocking", "h2d-pinned_blocking", "launch_bound-graph"),
    *("metrics-each_step", "overlap-in_turn", "synthetic-5", "trainforward-graph"),
    *("trainstep-graph", "trainstep-torch"),
)
"""Small reports that have each rule's findings, in each way to value them."""


def sqlite_report(folder: Path, name: str = "h200-ddp-rank0") -> Path:
    """A real report, unpacked into `folder`."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress(PACKED[name].read_bytes()))
    return path


def linked(folder: Path, *names: str) -> Path:
    """A folder with links to the packed reports of these names."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / PACKED[name].name).symlink_to(PACKED[name])
    return folder


def parquetdir_report(folder: Path) -> Path:
    """The real parquetdir export, unpacked into `folder`."""
    packed = lzma.decompress((DATA / "h200-parquetdir.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.rglob("StringIds.parquet")).parent
