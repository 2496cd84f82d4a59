"""What every request of a crawl would need, tried once before the start: an option that is unusable fails there."""

import math
from typing import Any

from gossamer.errors import BadInput
from gossamer.fetch.proxy import parse_proxy
from gossamer.fetch.request import check_headers
from gossamer.fetch.tls import TlsContexts
from gossamer.settings import Settings
from gossamer.worker.egress import AddressService

MOST_NESTED = 100
"""Levels of arrays and objects in attrs; what reads the records gives up at some hundreds."""

_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**64 - 1
_ELSEWHERE = {"output", "ca_file"}
"""Settings that name files: a path need not be text."""


def check_asked(settings: Settings) -> None:
    """Whether requests can be made with these settings. Raises BadInput, in one line, for the first that cannot be."""
    for group in (settings.crawl, settings.fetch):
        for name, value in group:
            if name not in _ELSEWHERE and name != "attrs":
                _check_text(name, value)
    check_attrs(settings.crawl.attrs)
    _check_headers(settings)
    if settings.fetch.proxy:
        parse_proxy(settings.fetch.proxy)
    if settings.fetch.egress_url:
        address_service(settings)
    if settings.fetch.ca_file:
        TlsContexts(extra_ca=settings.fetch.ca_file)


def address_service(settings: Settings) -> AddressService:
    """The one that says where requests come from. Raises BadInput."""
    fetch = settings.fetch
    return AddressService(
        fetch.egress_url, pattern=fetch.egress_pattern, user_agent=fetch.user_agent, proxy=fetch.proxy
    )


def check_attrs(attrs: dict[str, Any] | None) -> None:
    """Whether they can travel: JSON (RFC 8259) with integers of 64 bits, finite numbers and text of whole characters.

    Raises BadInput.
    """
    level: list[Any] = [attrs] if attrs else []
    depth = 0
    while level:
        depth += 1
        if depth > MOST_NESTED:
            raise BadInput(f"--attrs is nested more than {MOST_NESTED} levels deep; make it flatter")
        inner: list[Any] = []
        for value in level:
            inner += value.items() if isinstance(value, dict) else value
        # Keys and values of an object come as pairs, which are no level of their own.
        level = [part for part in _parts(inner) if not _check_leaf(part)]


def _parts(values: list[Any]) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]


def _check_leaf(value: object) -> bool:
    """False for what has parts of its own. Raises BadInput for what cannot be sent."""
    match value:
        case dict() | list():
            return False
        case None | bool():
            return True
        case int():
            if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
                raise BadInput(
                    f"--attrs: an integer has more than 64 bits ({len(str(value))} digits); write it as text"
                )
        case float():
            if not math.isfinite(value):
                raise BadInput(f"--attrs: JSON has no {value}; write null or text")
        case str():
            _check_text("--attrs", value)
        case _:
            raise BadInput(f"--attrs: {value!r} is nothing that JSON has; write it as text")
    return True


def _check_text(name: str, value: object) -> None:
    texts = value.items() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
    for text in texts:
        if isinstance(text, tuple):
            _check_text(name, text)
        elif isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadInput(f"{name}: {text!a} is not valid Unicode; write it in UTF-8") from None


def _check_headers(settings: Settings) -> None:
    crawl = settings.crawl
    check_headers((("User-Agent", settings.fetch.user_agent), ("Cookie", crawl.cookie), *crawl.header.items()))
    check_headers(tuple((name, "") for name in crawl.secret_header))
