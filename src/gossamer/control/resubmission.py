"""Request that would submit a crawl again: options that the frontier keeps of a submission, as fields of `crawl`.

Fixed: secrets are left out, because more people may read a crawl than have submitted it.
"""

from typing import Any, NamedTuple

import msgspec

from gossamer.model.crawl import Crawl, QueryOrder, Terms, login_of
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.model.messages.secret_fields import SECRET_FIELDS
from gossamer.model.rendering import written_step
from gossamer.policy.secrets import SecretHeaders

_SAME = (
    "maxdepth", "domain_max_pages", "allowed_domains", "allow_regex", "deny_regex", "deny_extensions", "useragent",
    "attrs", "sitemaps", "links", "ignore_robots", "retries", "pattern_max_pages", "path_repeats", "drop_parameters",
    "unique", "assets", "max_assets", "render", "render_match", "render_screenshot", "render_capture",
)  # fmt: skip
"""Fields that a request and terms have under the same name."""

_NO_TERMS = Terms()


class RepeatedSubmission(NamedTuple):
    """A request without its URL, and what it lacks."""

    request: dict[str, Any]
    left_out: list[str]
    """Fields that the submission has, and the request has not: secrets, rules of extraction, and those about visits."""


def request_of(crawl: Crawl, terms: Terms, *, spider: str) -> RepeatedSubmission:
    """Return the request that would submit a crawl with these options and terms again."""
    request: dict[str, Any] = {"appid": crawl.id.appid, "crawlid": crawl.id.crawlid}
    if login := login_of(crawl.pool):
        request["login"] = login
    elif terms.session:
        request["session"] = terms.session
    if terms.session:  # the expressions for its links that end it come with it
        own = tuple(expression for expression in terms.deny_regex or () if expression not in NEVER_FOLLOWED)
        terms = msgspec.structs.replace(terms, deny_regex=own or None)
    if spider != "link":
        request["spiderid"] = spider
    if crawl.max_pages:
        request["max_pages"] = crawl.max_pages
    if crawl.rate:
        request["rate"] = f"{crawl.rate.hits}/{crawl.rate.window_seconds:g}"
    if crawl.concurrency:
        request["domain_concurrency"] = crawl.concurrency
    if crawl.order.value != "fifo":
        request["order"] = crawl.order.value
    for name in _SAME:
        value = getattr(terms, name)
        if value != getattr(_NO_TERMS, name):  # 0 is a value, and an empty list may be one
            request[name] = list(value) if isinstance(value, tuple) else value
    request |= _rendering(terms)
    if terms.timeout_seconds is not None:
        request["timeout"] = terms.timeout_seconds
    if terms.query_order is QueryOrder.IGNORED:
        request["query_order"] = "ignored"
    if content := terms.content:
        request |= {name: True for name in ("text", "markdown") if getattr(content, name)}
        if content.chunk is not None:
            request["chunk"] = content.chunk
        place = "both" if content.in_record and content.in_items else "items" if content.in_items else "records"
        if place != ("records" if content.chunk is None else "items"):
            request["text_in"] = place
    secrets = SecretHeaders(terms)
    headers = {name: value for name, value in (terms.headers or {}).items() if name.lower() not in secrets.names}
    if headers:
        request["headers"] = headers
    lacks = {name: getattr(terms, name) for name in SECRET_FIELDS} | {
        "extract": terms.extract, "headers": len(headers) < len(terms.headers or {}), "recrawl": terms.recrawl,
    }  # fmt: skip
    return RepeatedSubmission(request, [name for name, value in lacks.items() if value])


def _rendering(terms: Terms) -> dict[str, Any]:
    """Return the fields about rendered pages that have another form than in the terms."""
    found: dict[str, Any] = {"render": "auto"} if terms.render_auto else {}
    if terms.render_steps:
        found["render_step"] = list(map(written_step, terms.render_steps))
    if (own := terms.render_terms) is not None:
        found |= {
            "render_seconds": own.seconds,
            "render_quiet": own.quiet_seconds,
            "render_other_sites": own.other_sites,
            "render_load": list(own.load),
        }
    return {name: value for name, value in found.items() if value}
