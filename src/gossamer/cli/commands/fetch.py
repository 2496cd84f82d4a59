"""`gossamer fetch`: one page, and everything a worker would know of it. The tool to debug with."""

import json as json_module
import time
from typing import Annotated, Any

import typer

from gossamer.cli import options, standard
from gossamer.cli import options as inputs
from gossamer.cli.running import run as run_loop
from gossamer.cli.summary import size
from gossamer.errors import FetchError
from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import LinkExtractor
from gossamer.fetch.client import HttpClients
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, FetchResponse, first_header
from gossamer.fetch.robots_service import MemoryRobotsStore, RobotsService, RobotsUnavailable
from gossamer.policy.scope import LinkScope
from gossamer.policy.urls import from_user_input, host, redirect_target, registered_domain
from gossamer.settings import Settings, load
from gossamer.wiring.plan import check_settings, make_plan, private_hosts
from gossamer.wiring.worker import make_clients, make_resolver
from gossamer.worker.attempt import MAX_HOPS
from gossamer.worker.context import CrawlHeaders, scope_of

_SHOWN = 25


def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page.", show_default=False)],
    scope: options.ScopeOption = None,
    allow_domain: options.AllowDomain = None,
    allow: options.Allow = None,
    deny: options.Deny = None,
    deny_extension: options.DenyExtension = None,
    follow_nofollow: options.FollowNofollow = None,
    resolve: options.Resolve = None,
    allow_private: options.AllowPrivate = None,
    ignore_robots: options.IgnoreRobots = None,
    insecure: options.Insecure = None,
    ca_file: options.CaFile = None,
    user_agent: options.UserAgent = None,
    header: options.Header = None,
    cookie: options.Cookie = None,
    secret_header: options.SecretHeader = None,
    headers_for: options.HeadersFor = None,
    proxy: options.ProxyOption = None,
    timeout: options.Timeout = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Fetch one page and show all that a worker would know of it.

    Its address, the robots.txt verdict and the rule behind it, redirects, timings, headers, encoding, and which of its
    links a crawl from here would follow, which not, and why. No frontier is needed and nothing is written.

    gossamer fetch https://example.com

    Exit code: 0 a page came, 1 none did, 2 bad input.
    """
    settings = load(
        {
            "crawl.scope": scope,
            "crawl.allow_domain": tuple(allow_domain) if allow_domain else None,
            "crawl.allow": tuple(allow) if allow else None,
            "crawl.deny": tuple(deny) if deny else None,
            "crawl.deny_extension": tuple(deny_extension) if deny_extension else None,
            "crawl.follow_nofollow": follow_nofollow,
            "crawl.allow_private": allow_private,
            "crawl.ignore_robots": ignore_robots,
            "crawl.insecure": insecure,
            "crawl.header": inputs.pairs(header),
            "crawl.cookie": cookie,
            "crawl.secret_header": tuple(secret_header) if secret_header else None,
            "crawl.headers_for": tuple(headers_for) if headers_for else None,
            "fetch.resolve": inputs.overrides(resolve),
            "fetch.ca_file": ca_file,
            "fetch.user_agent": user_agent,
            "fetch.proxy": proxy,
            "fetch.timeout": timeout,
        },
        config=config,
    )
    found = run_loop(_fetch(settings, from_user_input(url)))
    standard.show(json_module.dumps(found) if json else "\n".join(_told(found)))
    raise typer.Exit(0 if found.get("success") else 1)


async def _fetch(settings: Settings, url: str) -> dict[str, Any]:
    check_settings(settings)
    resolver = make_resolver(settings)
    clients = make_clients(settings, resolver)
    robots = RobotsService(clients.fetch, MemoryRobotsStore())
    try:
        private = await private_hosts(resolver, [url], allowed=settings.crawl.allow_private)
        plan = make_plan(settings, [url], crawl_id=None, now=time.time(), private_hosts=private)
        look = _FetchTrace(
            settings,
            clients,
            robots,
            scope_of(plan.terms),
            CrawlHeaders(plan.terms, settings.fetch.user_agent),
            private,
        )
        return await look.at(url)
    finally:
        await robots.close()
        await clients.close()
        resolver.close()


class _FetchTrace:
    """Follows one URL to its end, noting what is met."""

    def __init__(
        self,
        settings: Settings,
        clients: HttpClients,
        robots: RobotsService,
        scope: LinkScope,
        headers: CrawlHeaders,
        private: tuple[str, ...],
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._robots = robots
        self._scope = scope
        self._headers = headers
        self._private = private

    async def at(self, url: str) -> dict[str, Any]:
        crawl = self._settings.crawl
        found: dict[str, Any] = {"url": url, "domain": registered_domain(host(url)), "hops": [], "success": False}
        for _ in range(MAX_HOPS + 1):
            headers, cookie = self._headers.for_url(url)
            exchange = FetchRequest(
                url,
                headers=(*headers, ("Cookie", cookie)) if cookie else headers,
                proxy=self._settings.fetch.proxy or None,
                insecure=crawl.insecure,
                allow_private=host(url) in self._private,
            )
            hop: dict[str, Any] = {"url": url}
            found["hops"].append(hop)
            try:
                hop["robots"] = verdict = await self._verdict(exchange)
                if not verdict["allowed"]:
                    return found | {"error": f"robots.txt: {verdict['rule']}"}
                fetched = await self._clients.fetch(exchange)
            except FetchError as error:
                return found | {"error": str(error), "reason": error.kind}
            hop |= {"status": fetched.status, "ip": fetched.ip, "http": fetched.http_version}
            where = first_header(fetched.headers, "location")
            if fetched.status not in REDIRECT_STATUSES or where is None:
                return found | self._page(fetched)
            onward = redirect_target(url, where)
            if onward is None:
                return found | {"error": f"it redirects to {where[:200]!r}, which is no web page"}
            hop["location"] = onward
            refusal = self._scope.refusal(onward)
            if refusal is not None:
                return found | {"error": f"it redirects to {onward}, which a crawl would not follow: {refusal.rule}"}
            url = onward
        return found | {"error": f"more than {MAX_HOPS} redirects"}

    async def _verdict(self, exchange: FetchRequest) -> dict[str, Any]:
        if self._settings.crawl.ignore_robots:
            return {"allowed": True, "rule": "not asked"}
        answer = await self._robots.check(
            exchange.url, user_agent=self._settings.fetch.user_agent, template=exchange, explain=True
        )
        if isinstance(answer, RobotsUnavailable):
            return {"allowed": False, "rule": f"robots.txt cannot be had ({answer.reason}); a crawl would wait"}
        return {"allowed": answer.allowed, "rule": answer.rule, "crawl_delay": answer.crawl_delay}

    def _page(self, fetched: FetchResponse) -> dict[str, Any]:
        content_type = next((value for name, value in fetched.headers if name.lower() == "content-type"), "")
        text, encoding, strict = decode(fetched.body, content_type)
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
            "encoding": encoding if strict else f"{encoding} (with bytes that do not fit)",
            "characters": len(text),
            "links_kept": kept,
            "links_dropped": dropped,
        }

    def _links(
        self, fetched: FetchResponse, content_type: str, encoding: str
    ) -> tuple[list[str], list[dict[str, str]]]:
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
                dropped[plain] = {"url": plain, "text": text, "reason": refusal.reason, "rule": refusal.rule}
            elif plain == fetched.url:
                dropped[plain] = {"url": plain, "text": text, "reason": "known", "rule": "the page itself"}
            else:
                dropped[plain] = {"url": plain, "text": text, "reason": "nofollow", "rule": "the page or link asks so"}
        return links.urls, list(dropped.values())


def _told(found: dict[str, Any]) -> list[str]:
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
        f"  answer     {found['status']} {found['status_msg']} from {found['address']}",
        f"  timings    {timings}",
        f"  body       {size(found['body_bytes'])} ({size(found['received_bytes'])} received)"
        + ("   truncated" if found["truncated"] else ""),
        f"  type       {found['content_type'] or 'not said'}   encoding {found['encoding']}",
        "  headers",
        *(f"    {name}: {value}" for name, value in found["headers"]),
        f"  links a crawl from here would follow: {len(found['links_kept'])}",
        *(f"    {url}" for url in found["links_kept"][:_SHOWN]),
    ]
    if len(found["links_kept"]) > _SHOWN:
        lines.append(f"    ... and {len(found['links_kept']) - _SHOWN} more (--json shows all)")
    lines.append(f"  links it would not follow: {len(found['links_dropped'])}")
    lines += [f"    {link['url']}   {link['reason']}: {link['rule']}" for link in found["links_dropped"][:_SHOWN]]
    if len(found["links_dropped"]) > _SHOWN:
        lines.append(f"    ... and {len(found['links_dropped']) - _SHOWN} more (--json shows all)")
    return lines
