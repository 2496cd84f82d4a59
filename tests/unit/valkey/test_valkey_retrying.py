"""Waiting out a server that is away."""

import pytest

from gossamer.errors import FrontierFull, FrontierUnavailable
from gossamer.valkey.connection import retrying


async def test_repeats_until_it_works_and_says_so_at_once() -> None:
    told: list[int] = []

    async def call() -> str:
        if len(told) < 2:
            raise FrontierUnavailable("away")
        return "there"

    assert await retrying(call, on_trouble=lambda exc, attempt: told.append(attempt), chance=lambda: 0.0) == "there"
    assert told == [1, 2]


async def test_gives_up_when_told_to() -> None:
    async def call() -> None:
        raise FrontierUnavailable("away")

    with pytest.raises(FrontierUnavailable):
        await retrying(call, timeout_seconds=0.0)


async def test_what_is_no_outage_is_not_repeated() -> None:
    async def call() -> None:
        raise FrontierFull("full")

    with pytest.raises(FrontierFull):
        await retrying(call)
