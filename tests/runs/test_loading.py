"""Reports of any kind, with no more than was asked for."""

from nsysflow.runs.loading import load
from tests.reports import DATA


def test_every_loader_leaves_out_the_shapes_that_were_not_asked_for() -> None:
    shapes = load(DATA / "h200-kineto.pt.trace.json.gz", shapes="grid").shapes
    assert shapes["grid_x"].null_count() == 0 < len(shapes)
    assert shapes["registers"].null_count() == len(shapes)
