"""Parts of pages that several browsers follow."""

import asyncio

from starlette.responses import Response, StreamingResponse

from gossamer.dashboard.shared_parts import _MOST, SharedParts


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_part_is_made_once_a_second_for_all_with_the_same_key() -> None:
    clock = Clock()
    parts = SharedParts(clock)
    made: list[str] = []

    async def ask(key: str) -> bytes:
        async def make() -> Response:
            made.append(key)
            await asyncio.sleep(0)
            return Response(f"{key} {len(made)}")

        return bytes((await parts.answer(key, make)).body)

    assert await asyncio.gather(*(ask("a") for _ in range(50))) == [b"a 1"] * 50
    assert await ask("b") == b"b 2"
    clock.now = 0.9
    assert await ask("a") == b"a 1"
    clock.now = 1.0
    assert await ask("a") == b"a 3"
    assert made == ["a", "b", "a"]


async def test_a_browser_that_leaves_does_not_end_the_part_of_the_others() -> None:
    parts = SharedParts(Clock())
    go = asyncio.Event()

    async def make() -> Response:
        await go.wait()
        return Response("done")

    leaving, staying = (asyncio.create_task(parts.answer("a", make)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    go.set()
    assert (await staying).body == b"done"


async def test_only_so_many_parts_are_remembered() -> None:
    parts = SharedParts(Clock())

    async def make() -> Response:
        return Response("x")

    for number in range(2 * _MOST):
        await parts.answer(number, make)
    assert len(parts) <= _MOST


async def test_a_stream_is_not_shared_because_it_can_be_read_once() -> None:
    parts = SharedParts(Clock())

    async def make() -> Response:
        return StreamingResponse(iter([b"x"]))

    assert await parts.answer("a", make) is not await parts.answer("a", make)
