"""Which calls are rows of syncs, on traces of a few rows."""

from tests.oracle.model import Call
from tests.tiny import MAIN, PROCESS, Row, analysis_of, call, kernel, launch


def rows_of(*rows: Row) -> list[dict[str, object]]:
    return analysis_of(*rows).syncs.to_dicts()


def test_waits_are_ranked_by_the_idle_time_behind_them_not_by_their_length() -> None:
    long_harmless = call(2_000, 9_000, "cudaDeviceSynchronize")
    short_costly = call(150, 200, "cudaStreamSynchronize")
    work: list[Row] = [
        launch(0, 10, 1),
        kernel(20, 160, 1),
        launch(210, 220, 2),
        kernel(230, 1_900, 2),
    ]
    first, second = rows_of(long_harmless, short_costly, *work)
    assert (first["api"], first["induced_idle_ns"]) == ("cudaStreamSynchronize", 50)
    assert (second["api"], second["induced_idle_ns"]) == ("cudaDeviceSynchronize", 0)


def test_a_driver_call_inside_a_runtime_call_has_no_row_of_its_own() -> None:
    outer = Call(0, 100, PROCESS, MAIN, 5, "cudaStreamSynchronize")
    inner = Call(10, 90, PROCESS, MAIN, 5, "cuStreamSynchronize")
    assert [row["api"] for row in rows_of(outer, inner)] == ["cudaStreamSynchronize"]
