"""Changes that requests ask for, in the words of the audit: actions, subjects, and further facts without secrets.

Fixed: the words of actions, which people filter by. Names in subjects are encoded as in a path, so that a blank ends
one.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from gossamer.control.admission import AdmittedRequest
from gossamer.control.domains import DEFAULT_POLICY, parse_domain, policy_fields
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.messages.requests import ActionRequest, DomainRequest, StatsRequest
from gossamer.net.paths import path_of
from gossamer.storage.audit import AuditedChange, shown_address

_NAMED_CRAWLS = 3
"""Crawls that the subject of a batch names."""
_ACTIONS = {
    "domain-update": "domain.change",
    "domain-remove": "domain.remove",
    "blacklist-update": "blacklist.add",
    "blacklist-remove": "blacklist.remove",
}
_LIMITS = ("hits", "window", "scale")


class ChangeFacts(NamedTuple):
    """Change that a request asks for, without its client."""

    action: str
    subject: str
    details: dict[str, Any]

    def by(self, actor: str, origin: str) -> AuditedChange:
        """Return the change as a client asks for it."""
        return AuditedChange(actor=actor, origin=origin, action=self.action, subject=self.subject, details=self.details)


def crawl_subject(crawl: CrawlId) -> str:
    """Return the subject of a change of a crawl."""
    return path_of(crawl.appid, crawl.crawlid)


def submission(requests: Sequence[AdmittedRequest]) -> ChangeFacts:
    """Return what crawl requests change; one at least."""
    crawls = list(dict.fromkeys(request.crawl.id for request in requests))
    subject = " ".join(crawl_subject(crawl) for crawl in crawls[:_NAMED_CRAWLS])
    details: dict[str, Any] = {"requests": len(requests), "url": shown_address(requests[0].url)}
    if len(crawls) > 1:
        details["crawls"] = len(crawls)
    if requests[0].fresh:
        details["fresh"] = True
    if requests[0].terms.maxdepth is not None:
        details["maxdepth"] = requests[0].terms.maxdepth
    return ChangeFacts("crawl.submit", subject, details)


async def requested_change(frontier: ValkeyFrontier, kind: str, request: Any) -> ChangeFacts | None:
    """Return what a request of any kind but `crawl` is to change. None: nothing."""
    match request:
        case ActionRequest(action="stop"):
            spider = {"spiderid": request.spiderid} if request.spiderid else {}
            return ChangeFacts("crawl.stop", crawl_subject(CrawlId(request.appid, request.crawlid or "")), spider)
        case DomainRequest():
            given = {name: getattr(request, name) for name in _LIMITS if getattr(request, name)}
            details = {"appid": request.appid, **given, **await _policy(frontier, request.domain, "before")}
            return ChangeFacts(_ACTIONS[request.action], path_of(request.domain), details)
        case ActionRequest() | StatsRequest():
            return None
    return ChangeFacts(f"plugin.{kind}", "", {})  # may do anything


async def made_change(frontier: ValkeyFrontier, request: Any) -> dict[str, Any]:
    """Return further facts on a change that was made."""
    return await _policy(frontier, request.domain, "after") if isinstance(request, DomainRequest) else {}


def refusal_in(answers: Sequence[dict[str, Any]]) -> str:
    """Return why nothing was changed, from the answers to a request. Empty: it was."""
    return next((str(answer["error"]) for answer in answers if answer.get("error")), "")


async def _policy(frontier: ValkeyFrontier, domain: str, name: str) -> dict[str, Any]:
    """Return the present policy of a domain under a name; nothing for what is no domain."""
    with contextlib.suppress(BadInput):
        found = await frontier.domain_policy(None if domain == DEFAULT_POLICY else parse_domain(domain))
        return {name: policy_fields(found)}
    return {}
