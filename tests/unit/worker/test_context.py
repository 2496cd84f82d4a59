"""What a worker remembers of submissions is bounded by bytes, and shared where it does not depend on attrs."""

import gc
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from gossamer.extract.memory import HrefMemory
from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.request import Lease
from gossamer.policy.cache import BoundedCache
from gossamer.policy.scope import compile_scope
from gossamer.worker.context import Context, ContextOptions, Contexts, SharedMemory
from gossamer.worker.seen import SeenCache
from gossamer.worker.spider import LinkSpider

SUBMISSIONS = 1000
LINKS = 100
MIB = 2**20
OPTIONS = ContextOptions(user_agent="test", proxy="", include_links=False, redact=True)


def lease(run: Run, terms: Terms, url: str) -> Lease:
    return Lease(
        id=1, worker="worker-1", shard=0, run=run, spider="link", domain="a.test", priority=1, depth=0, attempt=0,
        deaths=0, url=url, payload=None, terms=terms, request_id="", identity=b"", charged=0.0,
    )  # fmt: skip


def contexts_of(memory: SharedMemory) -> Contexts:
    def make(run: Run, spider: str, terms: Terms) -> Context:
        return Context(
            run, spider, terms, spider=LinkSpider(), available_spiders=None, secret=1, memory=memory, options=OPTIONS
        )

    return Contexts(make)


def crawl(number: int) -> Run:
    return Run(Crawl(id=CrawlId("test", str(number))), 1, 1)


@pytest.fixture
def allocated() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("allocated")
def test_many_submissions_with_attrs_of_their_own_take_bounded_memory() -> None:
    """Their attrs, the hrefs of their pages and their compiled filters together, however many there are."""
    contexts = contexts_of(SharedMemory(SeenCache()))
    before = tracemalloc.get_traced_memory()[0]
    for number in range(SUBMISSIONS):
        attrs = {"n": number, "note": f"{number:05}" * 1000}
        deny = (f"/cart{number % 10}$",)
        html = "".join(f'<a href="/{number}/{k}/{"x" * 400}">' for k in range(LINKS))
        context = contexts.for_lease(lease(crawl(number % 10), Terms(attrs=attrs, deny_regex=deny), "http://a.test/"))
        links = context.extract_links(html.encode(), "http://a.test/", encoding="utf-8")
        assert len(links.urls) == LINKS
        context.confirm(links, (), since=context.data_epoch)
    del context, links
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    assert grown < 40 * MIB, f"{grown / MIB:.0f} MiB"


def test_what_does_not_depend_on_attrs_is_shared() -> None:
    """A submission that differs in its attrs only finds the links of the others known and their filters compiled."""
    contexts = contexts_of(SharedMemory(SeenCache()))
    one = contexts.for_lease(lease(crawl(1), Terms(attrs={"n": 1}, deny_regex=("/cart",)), "http://a.test/"))
    links = one.extract_links(b"<a href=/x><a href=/cart>", "http://a.test/", encoding="utf-8")
    one.confirm(links, (), since=one.data_epoch)
    two = contexts.for_lease(lease(crawl(1), Terms(attrs={"n": 2}, deny_regex=("/cart",)), "http://a.test/"))
    assert two is not one
    assert two.scope is one.scope
    again = two.extract_links(b"<a href=/x><a href=/cart>", "http://a.test/", encoding="utf-8")
    assert (again.urls, again.dropped) == ([], {"known": 1, "deny_regex": 1})


@pytest.mark.parametrize(
    ("run", "terms"),
    [(crawl(2), Terms()), (msgspec.structs.replace(crawl(1), number=2), Terms()), (crawl(1), Terms(deny_regex=("x",)))],
)
def test_what_is_known_in_one_crawl_is_new_in_another(run: Run, terms: Terms) -> None:
    """And in another run, and under other filters."""
    contexts = contexts_of(SharedMemory(SeenCache()))
    one = contexts.for_lease(lease(crawl(1), Terms(), "http://a.test/"))
    one.confirm(one.extract_links(b"<a href=/y>", "http://a.test/", encoding="utf-8"), (), since=one.data_epoch)
    other = contexts.for_lease(lease(run, terms, "http://a.test/"))
    assert other.extract_links(b"<a href=/y>", "http://a.test/", encoding="utf-8").urls == ["http://a.test/y"]


def test_a_new_era_forgets_links_and_sitemaps() -> None:
    data_epoch = 0
    contexts = contexts_of(SharedMemory(SeenCache(data_epoch=lambda: data_epoch)))
    context = contexts.for_lease(lease(crawl(1), Terms(), "http://a.test/"))
    context.confirm(context.extract_links(b"<a href=/y>", "http://a.test/", encoding="utf-8"), (), since=data_epoch)
    context.confirm_sitemaps_of("http://a.test", since=data_epoch)
    assert context.has_sitemaps_of("http://a.test")
    assert context.extract_links(b"<a href=/y>", "http://a.test/", encoding="utf-8").urls == []
    data_epoch = 1
    assert not context.has_sitemaps_of("http://a.test")
    assert context.extract_links(b"<a href=/y>", "http://a.test/", encoding="utf-8").urls == ["http://a.test/y"]


def test_a_bounded_cache_keeps_what_is_used() -> None:
    cache: BoundedCache[str, str] = BoundedCache(100)
    cache.put("used", "x", 10)
    for number in range(50):
        assert cache.get("used") == "x"
        cache.put(str(number), "y", 30)
        assert cache.bytes <= 100
    assert cache.get("48") == "y"
    assert cache.get("0") is None
    cache.put("large", "z", 1000)
    assert (len(cache), cache.get("large")) == (1, "z")
    cache.put("large", "z", 10)
    assert cache.bytes == 10


@pytest.mark.usefixtures("allocated")
def test_estimates_are_not_far_below_what_is_taken() -> None:
    before = tracemalloc.get_traced_memory()[0]
    hrefs = HrefMemory(max_bytes=4 * MIB)
    for place in range(300):
        for number in range(30):
            hrefs.keep("part", f"http://a{place}.test/", [f"/{place}/{number}"], "known")
    assert tracemalloc.get_traced_memory()[0] - before < 1.2 * hrefs.bytes


def test_a_scope_says_how_much_it_takes() -> None:
    plain = compile_scope(allowed_domains=["a.test"])
    assert (
        plain.estimated_bytes
        < compile_scope(deny_regex=["/x"]).estimated_bytes
        < compile_scope(deny_regex=[r"(a[b-y]{5}z){50}"]).estimated_bytes
    )
    before = plain.estimated_bytes
    for number in range(100):
        plain.reason(f"http://b{number}.test/")
    assert plain.estimated_bytes > before
