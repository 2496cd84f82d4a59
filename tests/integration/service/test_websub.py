"""WebSub with a small hub: subscriptions, their verification, pushes, and what is refused."""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from gossamer.errors import BadInput
from gossamer.fetch.client import HttpClient
from gossamer.fresh.rounds import KeptCrawl
from gossamer.fresh.store import IndexStore
from gossamer.fresh.subscriptions import Subscription, SubscriptionState
from gossamer.model.crawl import Crawl, CrawlId, RevisitOptions, Terms
from gossamer.net.resolve import Resolver
from gossamer.services.subscriber import HubSubscriber
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.wiring.service import check_public_url
from tests.integration.test_recrawl import Served, serving, write, write_text
from tests.servers.service import Up, up

PUBLIC = "http://crawls.test/api"


class Hub:
    """A hub that keeps the forms that it gets. It speaks to callbacks when a test wants it."""

    def __init__(self) -> None:
        hub = self
        self.forms: list[dict[str, str]] = []
        self.status = 202

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                hub.forms.append({name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()})
                self.send_response(hub.status)
                self.send_header("Content-Length", "8")
                self.end_headers()
                self.wfile.write(b"a reason")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def callback(self, service: Up) -> str:
        """Return the callback of the latest form, at the address of the API in this test."""
        callback = self.forms[-1]["hub.callback"]
        assert callback.startswith(f"{PUBLIC}/v1/websub/")
        return service.api + urlsplit(callback).path.removeprefix("/api")

    def verify(self, service: Up, **changed: str) -> httpx.Response:
        form = self.forms[-1]
        query = {"hub.mode": "subscribe", "hub.topic": form["hub.topic"], "hub.challenge": "c3/+ x",
                 "hub.lease_seconds": "86400", **{f"hub.{name}": value for name, value in changed.items()}}  # fmt: skip
        return httpx.get(self.callback(service), params=query)

    def push(self, service: Up, body: bytes, *, algorithm: str = "sha256", **headers: str) -> httpx.Response:
        secret = self.forms[-1]["hub.secret"].encode()
        signature = hmac.new(secret, body, getattr(hashlib, algorithm)).hexdigest()
        return httpx.post(
            self.callback(service), content=body, headers={"X-Hub-Signature": f"{algorithm}={signature}", **headers}
        )


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("web") / "site") as served:
        feed = '<link rel="alternate" type="application/atom+xml" href="/feed.atom">'
        write_text(served, "index.html", f"<html><head>{feed}</head><body>Home</body></html>")
        links = f'<link rel="hub" href="{hub.url}"/><link rel="self" href="{served.url}/feed.atom"/>'
        write_text(served, "feed.atom", f'<feed xmlns="http://www.w3.org/2005/Atom">{links}</feed>')
        write(served, "z.html")
        yield served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    settings = {"GOSSAMER_SERVICE__PUBLIC_URL": f"{PUBLIC}/", "GOSSAMER_SERVICE__TOKEN": "t"}
    with up(tmp_path_factory.mktemp("up"), "--allow-network", "127.0.0.0/8", environment=settings) as service:
        yield service


def until(is_reached: Callable[[], Any]) -> Any:
    last = time.monotonic() + 60
    while not (found := is_reached()):
        assert time.monotonic() < last
        time.sleep(0.05)
    return found


def counted(service: Up, event: str) -> float:
    text = httpx.get(f"{service.api}/metrics", headers={"Authorization": "Bearer t"}).text
    lines = [line for line in text.splitlines() if line.startswith(f'gossamer_websub_total{{event="{event}"}}')]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_a_push_makes_the_pages_due_that_it_names(service: Up, site: Served, hub: Hub) -> None:
    request = {"appid": "app", "crawlid": "subscribed", "url": f"{site.url}/", "maxdepth": 3, "recrawl": {"min": "9d"}}
    answer = httpx.post(f"{service.api}/v1/crawls", json=request, headers={"Authorization": "Bearer t"})
    assert answer.status_code == 201
    form = until(lambda: hub.forms and hub.forms[0])
    assert form["hub.mode"] == "subscribe"
    assert form["hub.topic"] == f"{site.url}/feed.atom"
    assert int(form["hub.lease_seconds"]) == 10 * 86_400
    assert 32 <= len(form["hub.secret"]) < 200
    entry = f'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="{site.url}/z.html"/></entry></feed>'.encode()
    assert hub.push(service, entry).status_code == 410, "it is not verified yet"

    for changed, status, reason in (
        ({"topic": f"{site.url}/other"}, 400, "the subscription is to "),
        ({"mode": "unsubscribe"}, 404, "no request with the mode unsubscribe was sent"),
        ({"challenge": ""}, 400, "hub.challenge"),
    ):
        answer = hub.verify(service, **changed)
        assert answer.status_code == status
        assert reason in answer.json()["detail"]
    answer = hub.verify(service)
    assert (answer.status_code, answer.text) == (200, "c3/+ x")
    assert hub.verify(service).status_code == 404, "it was not asked for again"

    answer = hub.push(service, entry, **{"X-Hub-Signature": "sha256=" + "0" * 64})
    assert answer.status_code == 403
    assert "is not that of this body" in answer.json()["detail"]
    answer = hub.push(service, entry, algorithm="sha1")
    assert answer.status_code == 403
    assert "with one of sha256, sha384, sha512" in answer.json()["detail"]
    answer = hub.push(service, entry, Link='<https://other.test/feed>; rel="self"')
    assert answer.status_code == 400
    assert "not to https://other.test/feed" in answer.json()["detail"]
    assert counted(service, "refused") == 8
    assert site.answers["/z.html", 200] == 0

    assert hub.push(service, entry, algorithm="sha512", Link=f'<{site.url}/feed.atom>; rel="self"').status_code == 204
    until(lambda: site.answers["/z.html", 200])
    fetched = sum(count for (path, _), count in site.answers.items() if path == "/feed.atom")
    assert hub.push(service, b"").status_code == 204  # a thin one
    until(lambda: sum(count for (path, _), count in site.answers.items() if path == "/feed.atom") > fetched)
    assert (counted(service, "verified"), counted(service, "pushed")) == (1, 2)


def test_unknown_callbacks_and_a_denial(service: Up, hub: Hub) -> None:
    known = hub.callback(service)
    folder = known.rpartition("/")[0]
    for path in (f"{folder}/{'0' * 32}", f"{folder}/x", f"{service.api}/v1/websub/x/y"):
        assert httpx.get(path).status_code == httpx.post(path).status_code == 404
    assert httpx.get(f"{service.api}/v1/cluster").status_code == 401, "all else needs the token"
    assert hub.verify(service, mode="denied", reason="no such topic").status_code == 200
    assert hub.push(service, b"").status_code == 410
    assert counted(service, "denied") == 1


def subscribed(folder: Path, hub: str) -> tuple[IndexStore, str]:
    """A store with one crawl whose feed names this hub."""
    store, crawl = IndexStore(str(folder)), CrawlId("app", "one")
    store.keep([KeptCrawl(crawl=Crawl(id=crawl), spider="link", priority=1, terms=Terms(recrawl=RevisitOptions()))])
    index = store.find(crawl)
    for _ in range(2):
        index.subscriptions.want("https://a.test/feed", hub, now=100.0)
    index.close()
    store.close()
    return store, crawl.token


async def ask(store: IndexStore, name: str, now: float) -> Subscription:
    """Ask the hubs that are due, and return the subscription."""
    client = HttpClient(Resolver(allow_networks=["127.0.0.2/32"]))
    subscriber = HubSubscriber(client, store, ServiceMetrics(), public_url=PUBLIC, agent="me", proxy=None)
    index = store.open(name)
    try:
        subscriber.offer(name, index.subscriptions.take_due(now, 10))
        await subscriber.idle()
        [one] = index.subscriptions.all()
        return one
    finally:
        index.close()
        await subscriber.close()


async def test_a_hub_at_a_private_address_is_not_asked(tmp_path: Path, hub: Hub) -> None:
    hub.forms.clear()
    one = await ask(*subscribed(tmp_path, hub.url), 100.0)
    assert one.state is SubscriptionState.WANTED
    assert "127.0.0.1" in one.reason
    assert hub.forms == []


async def test_a_hub_that_fails_or_does_not_ask_back_is_asked_again_later(tmp_path: Path) -> None:
    store, name = subscribed(tmp_path, "http://127.0.0.2:1/")
    one = await ask(store, name, 100.0)
    assert (one.tries, one.due) == (1, 700.0)
    assert one.reason
    assert (await ask(store, name, 699.0)).tries == 1
    one = await ask(store, name, 700.0)
    assert (one.tries, one.due) == (2, 700.0 + 1200)
    for _ in range(20):
        one = await ask(store, name, one.due)
    assert one.due - 86_400 <= 700 + 22 * 86_400


def test_a_lease_is_renewed_before_it_ends(tmp_path: Path) -> None:
    store, name = subscribed(tmp_path, "https://hub.test/")
    index = store.open(name)
    table = index.subscriptions
    [one] = table.take_due(100.0, 10)
    table.activate(one, 10 * 86_400, now=200.0)
    [active] = table.all()
    assert active.is_active(200.0 + 10 * 86_400 - 1)
    assert not active.is_active(200.0 + 10 * 86_400)
    assert table.take_due(active.due - 1, 10) == []
    assert active.until - active.due == pytest.approx(2.5 * 86_400)
    [renewed] = table.take_due(active.due, 10)
    assert renewed.id == one.id
    assert table.all()[0].is_active(active.due), "it goes on while the hub is asked"
    table.activate(renewed, 10**12, now=active.due)
    assert table.all()[0].until <= active.due + 90 * 86_400
    table.want("https://a.test/feed", "https://other.test/", now=300.0)
    [moved] = table.all()
    assert (moved.hub, moved.state, moved.due) == ("https://other.test/", SubscriptionState.WANTED, 300.0)
    assert moved.id != one.id, "the hub before knows the address and the secret"
    assert moved.secret != one.secret
    index.close()


@pytest.mark.parametrize("url", ["crawls.test", "ftp://crawls.test", "https://me@crawls.test", "https://c.test/?a"])
def test_a_public_address_that_no_hub_could_call_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match=r"service\.public_url: cannot use"):
        check_public_url(url)
