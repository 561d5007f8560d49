"""nsys's enumerations are read by their labels."""

from pathlib import Path

from nsysflow.analysis.load import load
from tests.exports import Row, write_export


def test_labels_in_the_export_win_over_known_numbers(tmp_path: Path) -> None:
    labels = {
        "ENUM_CUDA_MEM_KIND": [{"id": 8, "name": "X", "label": "Pinned"}],
        "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "name": "X", "label": "Device-to-Host"}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 159, "name": "X", "label": "NvtxPushPopRange"}],
    }
    copies: list[Row] = [
        {"copyKind": 1, "srcKind": 8, "dstKind": 0},
        {"copyKind": 10, "srcKind": None, "dstKind": 77},
    ]
    nvtx = [{"eventType": 159, "text": "a"}]
    trace = load(write_export(tmp_path / "r.sqlite", memcpys=copies, nvtx=nvtx, tables=labels))
    assert trace.copy_details["direction"].to_list() == ["DtoH", "PtoP"]
    assert trace.copy_details["source_memory"].to_list() == ["pinned", None]
    assert trace.copy_details["target_memory"].to_list() == ["pageable", "unknown"]
    assert trace.ops["name"].to_list() == ["memcpy DtoH", "memcpy PtoP"]
    assert trace.ranges["name"].to_list() == ["a"]
