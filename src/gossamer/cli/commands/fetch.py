"""`gossamer fetch`: fetches one page and shows everything that a crawl would learn from it, for debugging.

Fixed: flags, exit codes, and the fields of the JSON object that `_found` returns, which `--json` prints; fields may be
added. Every decision here must be made by the code that crawls use, never by a copy, or the command would show what no
crawl does.
"""

import json as json_module
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument
from gossamer.cli.running import run as run_loop
from gossamer.crawling.single import FetchedPage, Hop, fetch_page, for_one_page
from gossamer.errors import FetchError
from gossamer.extract.encoding import content_type_of, decode, is_html, looks_like_html
from gossamer.extract.links import LinkExtractor
from gossamer.fetch.exchange import FetchResponse, header_lines
from gossamer.policy.retry import REFUSED
from gossamer.policy.robots import asks_nofollow
from gossamer.policy.urls import host, registered_domain
from gossamer.policy.words import bytes_text, cause_advice, explain
from gossamer.settings import Settings

_LINKS_SHOWN = 25
"""Links of each kind that are shown; --json shows all."""


@options.takes(
    "scope", "allow_domain", "allow", "deny", "deny_extension", "follow_nofollow", *options.REQUEST_OPTIONS,
)  # fmt: skip
def fetch(
    url: Annotated[str, argument(metavar="URL", help="The page to fetch.", show_default=False)],
    *,
    render: options.Render = False,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Fetch one page and show what a crawl would learn from it.

    Shows the robots.txt verdict with its rule, redirects, timings, headers, the encoding, and for each link whether a
    crawl from this page would follow it, and why.

    gossamer fetch https://example.com

    Exit code: 0 the page was fetched; 1 it was not; 2 bad input.
    """
    settings = for_one_page(options.load_settings(given), render=render, typed=given)
    found = _found(settings, run_loop(fetch_page(settings, url)))
    terminal.print_result(json_module.dumps(found) if json else "\n".join(_report(found)))
    raise SystemExit(0 if found["success"] else 1)


def _found(settings: Settings, trace: FetchedPage) -> dict[str, Any]:
    """Return what was found, as one JSON object: `hops` (the requests, of which all but the last were redirected), then
    the page, or `error`."""
    found: dict[str, Any] = {
        "url": trace.url,
        "domain": registered_domain(host(trace.url)),
        "user_agent": trace.user_agent,
        "session": trace.session,
        "hops": [_hop(hop) for hop in trace.hops],
        "success": False,
    }
    if isinstance(trace.error, FetchError):
        return found | {"error": str(trace.error), "reason": trace.error.kind, "advice": trace.advice}
    response = trace.hops[-1].response
    if trace.error is not None or response is None:
        return found | {"error": trace.error.detail if trace.error else "", "advice": trace.advice}
    return found | _page(settings, trace, response)


def _hop(hop: Hop) -> dict[str, Any]:
    """Return a request as a JSON object."""
    shown: dict[str, Any] = {"url": hop.url}
    if hop.robots is not None:
        shown["robots"] = asdict(hop.robots)
    if hop.response is not None:
        shown |= {"status": hop.response.status, "ip": hop.response.ip, "http": hop.response.http_version}
    if hop.location:
        shown["location"] = hop.location
    return shown


def _page(settings: Settings, trace: FetchedPage, fetched: FetchResponse) -> dict[str, Any]:
    """Return the fields of a response that is no redirect."""
    content_type = content_type_of(header_lines(fetched.headers, "content-type"))
    text, encoding, is_valid = decode(fetched.body, content_type)
    kept, dropped = _links(settings, trace, fetched, content_type, encoding)
    refusal = trace.page.record.refusal if trace.page else None
    return {
        "success": refusal is None and 200 <= fetched.status < 400,
        "response_url": fetched.url,
        "status": fetched.status,
        "status_msg": fetched.reason,
        "address": f"{fetched.ip}:{fetched.port}" if fetched.ip else "",  # a proxy resolves names itself
        "headers": fetched.headers,
        "timings": {name: getattr(fetched.timings, name) for name in ("dns", "connect", "tls", "first_byte", "total")},
        "received_bytes": fetched.received_bytes,
        "body_bytes": len(fetched.body),
        "truncated": fetched.truncated,
        "faults": list(fetched.faults),
        "content_type": content_type,
        "encoding": encoding if is_valid else f"{encoding} (with invalid bytes)",
        "characters": len(text),
        "rendering": msgspec.to_builtins(fetched.rendering) if fetched.rendering else None,
        "refusal": msgspec.to_builtins(refusal) if refusal else None,
        "unread": _unread(fetched, content_type),
        "links_kept": kept,
        "links_dropped": dropped,
    }


def _unread(fetched: FetchResponse, content_type: str) -> str:
    """Return the reason why a crawl would not read the links, or not all of them; empty: it would, or there are
    none."""
    if is_html(content_type, fetched.body, fetched.headers):
        return "truncated" if fetched.truncated else ""
    return "not_html" if looks_like_html(fetched.body) else ""


def _links(
    settings: Settings, trace: FetchedPage, fetched: FetchResponse, content_type: str, encoding: str
) -> tuple[list[str], list[dict[str, str]]]:
    """Return the links that a crawl from this page would follow, and the others with the reason and the rule."""
    if not is_html(content_type, fetched.body, fetched.headers):
        return [], []
    scope = trace.scope
    extractor = LinkExtractor(scope, seed=0, follow_nofollow=settings.crawl.follow_nofollow, texts=True)
    nofollow = asks_nofollow(header_lines(fetched.headers, "x-robots-tag"), trace.user_agent)
    links = extractor.extract(fetched.body, fetched.url, encoding=encoding, nofollow=nofollow)
    kept = set(links.urls)
    dropped: dict[str, dict[str, str]] = {}
    for url, text in links.texts or []:
        plain = url.partition("#")[0]
        if plain in kept or plain in dropped:
            continue
        refusal = scope.refusal(plain)
        if refusal is not None:
            reason, rule = refusal.reason, refusal.rule
        elif plain == fetched.url:
            reason, rule = "known", "the page itself"
        else:  # or beyond MAX_URL_BYTES of links, which no real page has
            reason, rule = "nofollow", "the page (element or X-Robots-Tag) or the link is marked nofollow"
        dropped[plain] = {"url": plain, "text": text, "reason": reason, "rule": rule}
    return links.urls, list(dropped.values())


def _rendering(found: dict[str, Any] | None) -> list[str]:
    """Return the course of a rendering as a line for a person."""
    if found is None:
        return []
    end = "until it was quiet" if found["ended"] == "quiet" else "until the limit of seconds"
    loaded = f"{found['requests']} requests, {found['cached']} from the cache, {found['refused']} refused"
    return [
        f"  rendered   {found['seconds']:.2f} s {end}   {loaded}   {bytes_text(found['bytes'])}",
        *([f"  steps      {', '.join(map(str, found['steps']))} (how often each was taken)"] if found["steps"] else []),
        *(f"  answer     {answer['url']}   {answer['status']}" for answer in found["answers"]),
        *(f"  console    {text.splitlines()[0]}" for text in found["console"]),
        *(f"  failed     {load['url']}   {load['reason']}" for load in found["failed"]),
    ]


def _refusal(found: dict[str, Any] | None) -> list[str]:
    """Return a refusal of the site as lines for a person: its kind, what a person can do, the rule and its evidence."""
    if found is None:
        return []
    reason = f"{REFUSED}{found['kind']}"
    advice = cause_advice(reason, "")
    return [
        f"  refused    {explain(reason).title}, so a crawl takes neither links nor items from it ({reason})",
        *([f"  advice     {advice}"] if advice else []),
        f"  evidence   {found['rule']}: {', '.join(found['evidence'])}",
    ]


def _from(address: str) -> str:
    """Return where a response comes from. `address`: that of the server; empty: only the proxy knows it."""
    return f"from {address}" if address else "through the proxy"


def _report(found: dict[str, Any]) -> list[str]:
    """Return what `_found` returned as lines for a person."""
    lines = [f"{found['url']}   (domain {found['domain']})"]
    if found["user_agent"]:
        lines.append(f"  agent      {found['user_agent']}")
    if found["session"]:
        lines.append(f"  session    {found['session']}")
    for hop in found["hops"]:
        robots = hop.get("robots")
        if hop["url"] != found["url"]:
            lines.append(f"  -> {hop['url']}")
        if robots:
            delay = f", crawl delay {robots['crawl_delay']:g} s" if robots.get("crawl_delay") else ""
            lines.append(f"  robots     {'allowed' if robots['allowed'] else 'refused'}: {robots['rule']}{delay}")
        if "location" in hop:
            lines.append(f"  redirect   {hop['status']} {_from(hop['ip'])} to {hop['location']}")
    if "error" in found:
        advice = [f"  advice     {found['advice']}"] if found["advice"] else []
        return [*lines, f"  error      {found['error']}", *advice]
    timings = "   ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in found["timings"].items() if seconds)
    lines += [
        f"  response   {' '.join(filter(None, (str(found['status']), found['status_msg'], _from(found['address']))))}",
        *([f"  http       {version}"] if (version := found["hops"][-1]["http"]) else []),
        f"  timings    {timings}",
        f"  body       {bytes_text(found['body_bytes'])} ({bytes_text(found['received_bytes'])} received)"
        + ("   truncated" if found["truncated"] else ""),
        *([f"  faults     {', '.join(found['faults'])}"] if found["faults"] else []),
        *_rendering(found["rendering"]),
        f"  type       {found['content_type'] or 'not given'}   encoding {found['encoding']}",
        *_refusal(found["refusal"]),
        *([f"  links      not all read: {explain(found['unread']).title}"] if found["unread"] else []),
        "  headers",
        *(f"    {name}: {value}" for name, value in found["headers"]),
        f"  links that a crawl from here would follow: {len(found['links_kept'])}",
        *(f"    {url}" for url in found["links_kept"][:_LINKS_SHOWN]),
    ]
    if len(found["links_kept"]) > _LINKS_SHOWN:
        lines.append(f"    ... and {len(found['links_kept']) - _LINKS_SHOWN} more (--json shows all)")
    lines.append(f"  links that it would not follow: {len(found['links_dropped'])}")
    lines += [f"    {link['url']}   {link['reason']}: {link['rule']}" for link in found["links_dropped"][:_LINKS_SHOWN]]
    if len(found["links_dropped"]) > _LINKS_SHOWN:
        lines.append(f"    ... and {len(found['links_dropped']) - _LINKS_SHOWN} more (--json shows all)")
    return lines
