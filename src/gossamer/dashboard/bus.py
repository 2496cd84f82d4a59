"""The bus: its topics, requests that wait in them, and rejected requests, the latest first, which can be mended and
sent again."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import BUS_SECONDS, ApiRefused

_LETTERS: Final = 20
_TOPICS: Final = 20


class _Names(msgspec.Struct):
    """Names that a request may have. Any, because it may be rejected for them."""

    appid: Any = ""
    crawlid: Any = ""


_decode_names = msgspec.json.Decoder(_Names).decode


async def show(page: DashboardPage, *, fault: str = "", status_code: int = 200) -> Response:
    """Return the page."""
    letters_query = {"cursor": page.query.get("cursor"), "limit": _LETTERS, "latest_first": True}
    topics, letters = await asyncio.gather(
        page.service.get("/v1/topics", cursor=page.query.get("topics"), limit=_TOPICS),
        page.service.call("GET", "/v1/dead-letters", query=letters_query, seconds=BUS_SECONDS),
    )
    return page.render(
        "bus.html",
        topics=[
            *([] if page.query.get("topics") else topics["of_requests"]),  # first, because people look for them
            *(topic for topic in topics["items"] if not topic["is_of_requests"]),
        ],
        more_topics=topics["cursor"],
        lag=topics["lag"],
        letters=[(letter, crawl_of(letter)) for letter in letters["items"]],
        prefix=topics["dead_letter"].removesuffix("dead_letter"),
        cursor=letters["cursor"] if letters["more"] else "",
        requests=frozenset(topics["requests"]),
        was_sent=page.query.get("sent") == "yes",
        fault=fault,
        status_code=status_code,
    )


async def replay(page: DashboardPage) -> Response:
    """Send a rejected request again, as the form has it, and show the page."""
    given: Mapping[str, Any] = {
        "topic": page.form.get("topic", ""),
        "message": page.form.get("message", ""),
        "message_encoding": page.form.get("message_encoding", "text"),
        "letter": page.form.get("letter", ""),
    }
    try:
        await page.service.call("POST", "/v1/dead-letters/replay", body=given)
    except ApiRefused as error:
        return await show(page, fault=page.detail(error), status_code=error.status)
    return page.go("/bus", sent="yes")


def crawl_of(letter: Mapping[str, Any]) -> str:
    """Return the crawl that a rejected request names, as APPID/CRAWLID. Empty: it names none."""
    try:
        names = _decode_names(letter["message"])
    except msgspec.DecodeError:
        return ""
    return "/".join(name for name in (names.appid, names.crawlid) if name and isinstance(name, str))
