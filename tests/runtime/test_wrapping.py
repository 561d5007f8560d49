"""A decorated function has a range around its body."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import cast

import pytest

from nsysflow import region
from nsysflow.runtime import collectors, regions
from tests.recording import read_back, recorded


def test_a_decorated_function_is_a_range_each_time_it_is_called() -> None:
    with recorded() as notes:

        @region("loss")
        def loss(value: int) -> int:
            """Half of it."""
            return value // 2

        assert loss(4) == 2
        assert loss(6) == 3
    assert notes.opened() == ["loss", "loss"]
    assert (loss.__name__, loss.__doc__) == ("loss", "Half of it.")


def test_without_a_profiler_a_decorated_function_is_returned_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collectors, "COLLECTOR_HERE", None)

    def loss() -> None:
        pass

    assert region("loss")(loss) is loss


def test_a_decorated_coroutine_is_a_range_over_all_of_its_body() -> None:
    with recorded() as notes:

        @region("outer")
        async def outer() -> int:
            with region("before"):
                pass
            await asyncio.sleep(0)
            with region("after"):
                return 3

        assert inspect.iscoroutinefunction(outer)
        assert asyncio.run(outer()) == 3
    assert read_back(notes) == [("outer", [("before", []), ("after", [])])]


def test_a_decorated_generator_is_a_range_between_its_yields_and_not_around_its_consumer() -> None:
    with recorded() as notes:

        @region("generator")
        def numbers() -> Generator[int, int, str]:
            with region("first"):
                sent = yield 1
            try:
                yield sent
            except KeyError:
                return "ended"
            return "never thrown"

        assert inspect.isgeneratorfunction(numbers)
        made = numbers()
        with region("consumer"):
            assert next(made) == 1
        assert made.send(5) == 5
        with pytest.raises(StopIteration, match="ended"):
            made.throw(KeyError())
    opened = [name for what, name, _ in notes.events if what == "open"]
    closed = [name for what, name, _ in notes.events if what == "close"]
    assert opened == ["consumer", "generator", "first", "generator", "generator"]
    assert sorted(closed) == sorted(opened)
    assert not regions._OPEN.ranges


def test_a_decorated_generator_that_is_closed_cleans_up_inside_its_range() -> None:
    with recorded() as notes:

        @region("generator")
        def numbers() -> Iterator[int]:
            try:
                yield 1
            finally:
                with region("cleanup"):
                    pass

        made = numbers()
        next(made)
        cast("Generator[int]", made).close()
    assert read_back(notes) == [("generator", []), ("generator", [("cleanup", [])])]


def test_a_decorated_async_generator_is_a_range_between_its_yields() -> None:
    with recorded() as notes:

        @region("generator")
        async def numbers() -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(0)
            yield 2

        async def consume() -> list[int]:
            found = []
            async for number in numbers():
                with region("consumer"):
                    found.append(number)
            return found

        assert inspect.isasyncgenfunction(numbers)
        assert asyncio.run(consume()) == [1, 2]
    names = ["generator", "consumer", "generator", "consumer", "generator"]
    assert read_back(notes) == [(name, []) for name in names]


class Callable_:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "thing", [Callable_, Callable_(), staticmethod(len), classmethod(lambda _cls: None), len]
)
@pytest.mark.parametrize("collector", ["nsys", None])
def test_only_functions_can_be_decorated_with_or_without_a_profiler(
    monkeypatch: pytest.MonkeyPatch,
    thing: Callable[..., object],
    collector: collectors.Collector | None,
) -> None:
    monkeypatch.setattr(collectors, "COLLECTOR_HERE", collector)
    with pytest.raises(TypeError, match="@region decorates functions"):
        region("loss")(thing)
