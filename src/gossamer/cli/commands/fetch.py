"""`gossamer fetch`: fetches one page and shows everything that a crawl would learn from it, for debugging.

Safe to change: help texts (then regenerate docs/reference) and the text of `_report`. Fixed: flags, exit codes, and the
fields of the JSON object that `follow` returns, which `--json` prints; fields may be added. Every decision here must be
made by the code that crawls use, never by a copy, or the command would show what no crawl does.
"""

import json as json_module
import time
from typing import Annotated, Any

import typer

from gossamer.cli import options, terminal
from gossamer.cli.running import run as run_loop
from gossamer.cli.summary import bytes_text
from gossamer.errors import FetchError
from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import LinkExtractor
from gossamer.fetch.client import HttpClients
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, FetchResponse, first_header
from gossamer.fetch.robots_service import MemoryRobotsStore, RobotsService, RobotsUnavailable
from gossamer.policy.scope import LinkScope
from gossamer.policy.urls import from_user_input, host, redirect_target, registered_domain
from gossamer.settings import Settings
from gossamer.wiring.plan import check_settings, find_private_hosts, make_plan
from gossamer.wiring.worker import make_clients, make_resolver
from gossamer.worker.attempt import MAX_HOPS
from gossamer.worker.context import CrawlHeaders, scope_of

_LINKS_SHOWN = 25
"""Links of each kind that are shown; --json shows all. May be changed freely."""


@options.takes(
    "scope", "allow_domain", "allow", "deny", "deny_extension", "follow_nofollow", "resolve", "allow_private",
    "ignore_robots", "insecure", "ca_file", "user_agent", "header", "cookie", "secret_header", "headers_for", "proxy",
    "timeout",
)  # fmt: skip
def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page to fetch.", show_default=False)],
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Fetch one page and show what a crawl would learn from it.

    Shows the address, the robots.txt verdict with its rule, redirects, timings, headers, the encoding, and for each
    link whether a crawl from this page would follow it, and why. Needs no frontier and writes no file.

    gossamer fetch https://example.com

    Exit code: 0 the page was fetched; 1 it was not; 2 bad input.
    """
    settings = options.load_settings(given)
    found = run_loop(_fetch(settings, from_user_input(url)))
    terminal.print_result(json_module.dumps(found) if json else "\n".join(_report(found)))
    raise typer.Exit(0 if found["success"] else 1)


async def _fetch(settings: Settings, url: str) -> dict[str, Any]:
    """Return what `_FetchTrace.follow` found. Raises BadInput for options that a crawl would refuse, too."""
    check_settings(settings)
    resolver = make_resolver(settings)
    clients = make_clients(settings, resolver)
    robots = RobotsService(clients.fetch, MemoryRobotsStore())
    try:
        private = await find_private_hosts(resolver, [url], allowed=settings.crawl.allow_private)
        # Only its terms are used: the options that a crawl from this page would have.
        plan = make_plan(settings, [url], crawl_id=None, now=time.time(), private_hosts=private)
        trace = _FetchTrace(
            settings,
            clients,
            robots,
            scope_of(plan.terms),
            CrawlHeaders(plan.terms, settings.fetch.user_agent),
            private,
        )
        return await trace.follow(url)
    finally:
        await robots.close()
        await clients.close()
        resolver.close()


class _FetchTrace:
    """Fetches a URL with its redirects, and records each step."""

    def __init__(
        self,
        settings: Settings,
        clients: HttpClients,
        robots: RobotsService,
        scope: LinkScope,
        headers: CrawlHeaders,
        private: tuple[str, ...],
    ) -> None:
        """`scope`: decides which links a crawl from the page follows. `headers`: adds cookie and headers to requests.
        `private`: hosts outside the public internet that may be fetched."""
        self._settings = settings
        self._clients = clients
        self._robots = robots
        self._scope = scope
        self._headers = headers
        self._private = private

    async def follow(self, url: str) -> dict[str, Any]:
        """Return what was found, as one JSON object: `hops` (the requests, of which all but the last were redirected),
        then the page, or `error`."""
        crawl = self._settings.crawl
        found: dict[str, Any] = {"url": url, "domain": registered_domain(host(url)), "hops": [], "success": False}
        for _ in range(MAX_HOPS + 1):
            headers, cookie = self._headers.for_url(url)
            request = FetchRequest(
                url,
                headers=(*headers, ("Cookie", cookie)) if cookie else headers,
                proxy=self._settings.fetch.proxy or None,
                insecure=crawl.insecure,
                allow_private=host(url) in self._private,
            )
            hop: dict[str, Any] = {"url": url}
            found["hops"].append(hop)  # before it is complete: an error shows how far it came
            try:
                hop["robots"] = verdict = await self._verdict(request)
                if not verdict["allowed"]:
                    return found | {"error": f"robots.txt: {verdict['rule']}"}
                fetched = await self._clients.fetch(request)
            except FetchError as error:
                return found | {"error": str(error), "reason": error.kind}
            hop |= {"status": fetched.status, "ip": fetched.ip, "http": fetched.http_version}
            target = first_header(fetched.headers, "location")
            if fetched.status not in REDIRECT_STATUSES or target is None:
                return found | self._page(fetched)
            next_url = redirect_target(url, target)
            if next_url is None:
                return found | {"error": f"it redirects to {target[:200]!r}, which is not a web page"}
            hop["location"] = next_url
            refusal = self._scope.refusal(next_url)
            if refusal is not None:
                return found | {"error": f"it redirects to {next_url}, which a crawl would not follow: {refusal.rule}"}
            url = next_url
        return found | {"error": f"more than {MAX_HOPS} redirects"}

    async def _verdict(self, request: FetchRequest) -> dict[str, Any]:
        """Return whether robots.txt allows the request, and the rule that decided."""
        if self._settings.crawl.ignore_robots:
            return {"allowed": True, "rule": "not fetched"}
        answer = await self._robots.check(
            request.url, user_agent=self._settings.fetch.user_agent, template=request, explain=True
        )
        if isinstance(answer, RobotsUnavailable):
            return {"allowed": False, "rule": f"robots.txt could not be fetched ({answer.reason}); a crawl would wait"}
        return {"allowed": answer.allowed, "rule": answer.rule, "crawl_delay": answer.crawl_delay}

    def _page(self, fetched: FetchResponse) -> dict[str, Any]:
        """Return the fields of a response that is no redirect."""
        content_type = next((value for name, value in fetched.headers if name.lower() == "content-type"), "")
        text, encoding, is_valid = decode(fetched.body, content_type)
        kept, dropped = self._links(fetched, content_type, encoding)
        return {
            "success": 200 <= fetched.status < 400,
            "response_url": fetched.url,
            "status": fetched.status,
            "status_msg": fetched.reason,
            "address": f"{fetched.ip}:{fetched.port}",
            "headers": fetched.headers,
            "timings": {
                name: getattr(fetched.timings, name) for name in ("dns", "connect", "tls", "first_byte", "total")
            },
            "received_bytes": fetched.received_bytes,
            "body_bytes": len(fetched.body),
            "truncated": fetched.truncated,
            "content_type": content_type,
            "encoding": encoding if is_valid else f"{encoding} (with invalid bytes)",
            "characters": len(text),
            "links_kept": kept,
            "links_dropped": dropped,
        }

    def _links(
        self, fetched: FetchResponse, content_type: str, encoding: str
    ) -> tuple[list[str], list[dict[str, str]]]:
        """Return the links that a crawl from this page would follow, and the others with the reason and the rule."""
        if not is_html(content_type, fetched.body):
            return [], []
        extractor = LinkExtractor(self._scope, seed=0, follow_nofollow=self._settings.crawl.follow_nofollow, texts=True)
        links = extractor.extract(fetched.body, fetched.url, encoding=encoding)
        kept = set(links.urls)
        dropped: dict[str, dict[str, str]] = {}
        for url, text in links.texts or []:
            plain = url.partition("#")[0]
            if plain in kept or plain in dropped:
                continue
            refusal = self._scope.refusal(plain)
            if refusal is not None:
                reason, rule = refusal.reason, refusal.rule
            elif plain == fetched.url:
                reason, rule = "known", "the page itself"
            else:  # or beyond MAX_URL_BYTES of links, which no real page has
                reason, rule = "nofollow", "the page or the link is marked nofollow"
            dropped[plain] = {"url": plain, "text": text, "reason": reason, "rule": rule}
        return links.urls, list(dropped.values())


def _report(found: dict[str, Any]) -> list[str]:
    """Return what `follow` found as lines for a person."""
    lines = [f"{found['url']}   (domain {found['domain']})"]
    for hop in found["hops"]:
        robots = hop.get("robots")
        if hop["url"] != found["url"]:
            lines.append(f"  -> {hop['url']}")
        if robots:
            delay = f", crawl delay {robots['crawl_delay']:g} s" if robots.get("crawl_delay") else ""
            lines.append(f"  robots     {'allowed' if robots['allowed'] else 'refused'}: {robots['rule']}{delay}")
        if "location" in hop:
            lines.append(f"  redirect   {hop['status']} from {hop['ip']} to {hop['location']}")
    if "error" in found:
        return [*lines, f"  error      {found['error']}"]
    timings = "   ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in found["timings"].items() if seconds)
    lines += [
        f"  response   {found['status']} {found['status_msg']} from {found['address']}",
        f"  timings    {timings}",
        f"  body       {bytes_text(found['body_bytes'])} ({bytes_text(found['received_bytes'])} received)"
        + ("   truncated" if found["truncated"] else ""),
        f"  type       {found['content_type'] or 'not given'}   encoding {found['encoding']}",
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
