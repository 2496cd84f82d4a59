"""What a plug-in's handler answers is looked at before it can hold up the intake."""

from typing import Any

import msgspec

from gossamer.control.desk import Handler


class Checked:
    """Implements Handler over one of a plug-in."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def handle(self, request: Any, *, old: bool) -> list[dict[str, Any]]:
        """Its answers. Raises TypeError for what cannot be published, and whatever the plug-in raises."""
        answers: Any = await self._handler.handle(request, old=old)
        if not isinstance(answers, list) or not all(
            isinstance(answer, dict) and isinstance(answer.get("appid"), str) for answer in answers
        ):
            raise TypeError("a handler returns a list of objects, each with an appid")
        msgspec.json.encode(answers)
        return answers
