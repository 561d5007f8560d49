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


def sqlite_report(folder: Path, name: str = "h200-ddp-rank0") -> Path:
    """A real report, unpacked into `folder`."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress(PACKED[name].read_bytes()))
    return path


def parquetdir_report(folder: Path) -> Path:
    """The real parquetdir export, unpacked into `folder`."""
    packed = lzma.decompress((DATA / "h200-parquetdir.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.rglob("StringIds.parquet")).parent
