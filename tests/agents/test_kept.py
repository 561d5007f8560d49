"""Results are kept: the last few, made once, whatever thread asks."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from nsysflow.agents.kept import Kept


def test_a_result_is_made_once() -> None:
    kept: Kept[object] = Kept(2)
    first = kept.get("a", object)
    assert kept.get("a", object) is first


def test_what_was_longest_not_asked_for_goes_first() -> None:
    kept: Kept[object] = Kept(2)
    a, b = kept.get("a", object), kept.get("b", object)
    assert kept.get("a", object) is a
    kept.get("c", object)
    assert kept.get("a", object) is a
    assert kept.get("b", object) is not b


def test_threads_that_ask_at_once_get_the_same() -> None:
    kept: Kept[object] = Kept(2)
    together = Barrier(4)

    def ask(_: int) -> object:
        together.wait()
        return kept.get("a", object)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def test_an_error_is_not_kept() -> None:
    kept: Kept[int] = Kept(2)

    def fail() -> int:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        kept.get("a", fail)
    assert kept.get("a", lambda: 1) == 1
