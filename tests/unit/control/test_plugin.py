"""Answers of plug-ins."""

from typing import Any

import pytest

from gossamer.control.dispatcher import CheckedHandler


class _Answers:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def handle(self, request: Any, *, format_1_0: bool) -> Any:
        return self._answer


@pytest.mark.parametrize("answer", [None, {}, ["x"], [{}], [{"appid": 1}], [{"appid": "app", "made": object()}]])
async def test_what_cannot_be_published_is_the_handlers_fault(answer: Any) -> None:
    with pytest.raises(TypeError):
        await CheckedHandler(_Answers(answer)).handle({}, format_1_0=False)


async def test_what_can_be_published_is_passed_on() -> None:
    assert await CheckedHandler(_Answers([{"appid": "app"}])).handle({}, format_1_0=False) == [{"appid": "app"}]
