"""Callbacks of WebSub hubs (W3C WebSub, sections 5.3 and 7): the verification of a subscription, and pushes.

No token is asked for: a hub has none. The path contains 128 random bits, and a push is signed with the secret of its
subscription. Fixed: the paths, which hubs keep while leases last.
"""

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from gossamer.api.context import ApiContext, Context
from gossamer.api.problems import bad_request, not_found
from gossamer.extract.hub_links import hub_links
from gossamer.extract.sitemap import parse_sitemap
from gossamer.fresh.index import PageIndex
from gossamer.fresh.store import IndexStore, kept_crawl
from gossamer.fresh.subscriptions import CALLBACKS, LEASE_SECONDS, Subscription
from gossamer.policy.scope import scope_of
from gossamer.web.access import is_secret
from gossamer.web.problems import Problem

_ID: Final = re.compile(r"[0-9a-f]{32}")
_TOKEN: Final = re.compile(r"[0-9a-zA-Z_-]{1,64}")
_ALGORITHMS: Final = {"sha256": hashlib.sha256, "sha384": hashlib.sha384, "sha512": hashlib.sha512}
"""Algorithms of signatures. SHA-1 is not among them, because collisions of it can be made."""
_MOST_ENTRIES: Final = 1000
"""Entries of a push that count: the first ones."""
_MOST_CHALLENGE: Final = 2000
"""Characters of a challenge."""

router = APIRouter(prefix=CALLBACKS.rstrip("/"), include_in_schema=False)


@router.get("/{crawl}/{subscription}", operation_id="websub_verify")
async def verify_subscription(context: Context, crawl: str, subscription: str, request: Request) -> Response:
    """Tells a hub that a subscription is wanted, by echoing its challenge; or takes note that the hub denies it."""
    query = request.query_params
    mode, topic = query.get("hub.mode", ""), query.get("hub.topic", "")
    lease = query.get("hub.lease_seconds", "")
    challenge = query.get("hub.challenge", "")

    def verify(index: PageIndex, one: Subscription) -> str:
        now = time.time()
        if topic != one.topic:
            raise _refused(index, one, bad_request(f"the subscription is to {one.topic}", where="hub.topic"))
        if mode == "denied":
            reason = query.get("hub.reason") or "it gives no reason"
            index.subscriptions.deny(one, f"the hub denies the subscription: {reason}", now=now)
            return "denied"
        if mode != "subscribe" or not one.tries:
            detail = f"no request with the mode {mode[:20] or 'none'} was sent to the hub"
            raise _refused(index, one, not_found(detail))
        if not challenge or len(challenge) > _MOST_CHALLENGE:
            detail = f"send 1 to {_MOST_CHALLENGE:,} characters"
            raise _refused(index, one, bad_request(detail, where="hub.challenge"))
        seconds = int(lease) if lease.isascii() and lease.isdecimal() and len(lease) < 12 else LEASE_SECONDS
        index.subscriptions.activate(one, seconds, now=now)
        return "verified"

    with _counted(context):
        event = await asyncio.to_thread(_with_subscription, _store(context), crawl, subscription, verify)
    context.metrics.websub.labels(event).inc()
    return Response(challenge if event == "verified" else "", media_type="text/plain")


@router.post("/{crawl}/{subscription}", operation_id="websub_push")
async def take_push(context: Context, crawl: str, subscription: str, request: Request) -> Response:
    """Makes the pages due that a hub names. A body without entries makes the feed itself due."""
    body = await request.body()
    signature = request.headers.get("x-hub-signature", "")
    headers = list(request.headers.items())

    def take(index: PageIndex, one: Subscription) -> str:
        if not one.is_active(time.time()):
            raise _refused(index, one, Problem(410, "Gone", "the subscription has ended"))
        if fault := _signature_fault(signature, one.secret, body):
            raise _refused(index, one, Problem(403, "Forbidden", fault))
        named = hub_links(headers, b"", one.topic).topic
        if named and named != one.topic:
            detail = f"the subscription is to {one.topic}, not to {named}"
            raise _refused(index, one, bad_request(detail, where="Link"))
        _enter(index, one, body)
        index.subscriptions.count_push(one)
        return "pushed"

    with _counted(context):
        event = await asyncio.to_thread(_with_subscription, _store(context), crawl, subscription, take)
    context.metrics.websub.labels(event).inc()
    return Response(status_code=204)


@contextmanager
def _counted(context: ApiContext) -> Iterator[None]:
    """Count callbacks that are refused."""
    try:
        yield
    except Problem:
        context.metrics.websub.labels("refused").inc()
        raise


def _store(context: ApiContext) -> IndexStore:
    if context.indexes is None or not context.public_url:
        raise not_found("this service subscribes to no hubs; the setting service.public_url is not set")
    return context.indexes


def _with_subscription(store: IndexStore, crawl: str, id: str, action: Callable[[PageIndex, Subscription], str]) -> str:
    """Call a function with the index of a crawl and one of its subscriptions. Raises Problem if there is none."""
    unknown = not_found("there is no such subscription")
    if not _TOKEN.fullmatch(crawl) or not _ID.fullmatch(id) or crawl not in store.names():
        raise unknown
    index = store.open(crawl)
    try:
        one = index.subscriptions.find(id)
        if one is None:
            raise unknown
        if kept_crawl(index) is None:
            raise _refused(index, one, Problem(410, "Gone", "the crawl is not kept up to date any more"))
        return action(index, one)
    finally:
        index.close()


def _refused(index: PageIndex, one: Subscription, problem: Problem) -> Problem:
    """Note that a callback is refused, and return the problem."""
    index.subscriptions.note_fault(one.id, f"a callback was refused: {problem.detail}", is_callback=True)
    return problem


def _signature_fault(signature: str, secret: str, body: bytes) -> str:
    """Return why a push is not signed with the secret; empty: it is."""
    algorithm, _, given = signature.partition("=")
    if (digest := _ALGORITHMS.get(algorithm.strip().lower())) is None:
        return f"sign the push in the header X-Hub-Signature with one of {', '.join(_ALGORITHMS)}"
    expected = hmac.new(secret.encode(), body, digest).hexdigest()
    if not is_secret(given.strip().lower().encode("latin-1", "replace"), expected):
        return "the signature in X-Hub-Signature is not that of this body with the secret of the subscription"
    return ""


def _enter(index: PageIndex, one: Subscription, body: bytes) -> None:
    """Let the pages be due that a push names, as far as they are in scope; if it names none, the feed."""
    kept = kept_crawl(index)
    assert kept is not None
    scope, now = scope_of(kept.terms), int(index.clock())
    found = parse_sitemap(body, one.topic).urls[:_MOST_ENTRIES] if body else []
    urls = [url for url in found if scope.reason(url) is None]
    announced = index.announce(dict.fromkeys(urls or (() if found else [one.topic]), now), is_certain=True)
    if urls:
        kept.enter(index, announced.unknown)
