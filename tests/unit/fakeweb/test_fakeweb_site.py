"""The shape of the web follows from the seed, and everything can be reached."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fakeweb.site import Fate, Site, SitePage
from gossamer.fakeweb.spec import Robots, WebSpec
from gossamer_fakeweb.expected import Ends, expected, fetched, graph


def every_page(site: Site) -> list[SitePage]:
    return [SitePage(host, number) for host in range(site.spec.hosts) for number in range(site.spec.pages)]


def test_the_same_seed_gives_the_same_links_and_another_seed_others() -> None:
    one, same, other = (Site(WebSpec(seed=seed, pages=300)) for seed in (7, 7, 8))
    pages = every_page(one)
    assert [one.outlinks(page) for page in pages] == [same.outlinks(page) for page in pages]
    assert [one.outlinks(page) for page in pages] != [other.outlinks(page) for page in pages]


def test_links_do_not_change_between_versions() -> None:
    """A seed quoted in a bug report must mean the same web for ever."""
    site = Site(WebSpec(seed=1, hosts=2, pages=1000, out_degree=10, cross_host_share=0.3))
    assert site.outlinks(SitePage(0, 3)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (0, 7),
        (0, 8),
        (1, 780),
        (1, 431),
        (1, 536),
    ]


@pytest.mark.parametrize("out_degree", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("pages", [1, 2, 3, 50])
def test_every_page_of_a_host_is_reached_from_its_first(pages: int, out_degree: int) -> None:
    site = Site(WebSpec(hosts=2, pages=pages, out_degree=out_degree))
    assert graph(site, seeds=[1]) == {site.url(1, number) for number in range(pages)}


@pytest.mark.parametrize("out_degree", [1, 2, 3, 20])
def test_every_page_has_as_many_links_as_asked_for(out_degree: int) -> None:
    site = Site(WebSpec(hosts=3, pages=40, out_degree=out_degree, cross_host_share=0.2))
    for page in every_page(site):
        links = site.outlinks(page)
        assert len(links) == out_degree
        assert all(link.host < 3 and link.number < 40 for link in links)


def test_links_cross_hosts_as_often_as_asked_for() -> None:
    def share(asked: float) -> float:
        site = Site(WebSpec(hosts=4, pages=500, cross_host_share=asked))
        links = [link.host != page.host for page in every_page(site) for link in site.outlinks(page)]
        return sum(links) / len(links)

    assert share(0.0) == 0
    assert share(0.25) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("subdomains", [1, 3])
def test_host_names_and_numbers_name_each_other(subdomains: int) -> None:
    site = Site(WebSpec(hosts=31, subdomains=subdomains))
    names = list(site.hosts())
    assert len(set(names)) == 31
    assert [site.host_number(name) for name in names] == list(range(31))
    assert len({name.split(".")[-2] for name in names}) == -(-31 // subdomains)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "site.test",
        "site5.test",
        "site00.test",
        "site0.test.",
        "xsite0.test",
        "h0.site0.test",
        "site-1.test",
        "site٣.test",
    ],
)
def test_other_host_names_are_nobodys(name: str) -> None:
    assert Site(WebSpec(hosts=5)).host_number(name) is None


@given(st.text(max_size=20))
def test_no_host_name_and_no_path_is_an_error(text: str) -> None:
    site = Site(WebSpec(hosts=5, subdomains=2, redirect_same=0.5))
    number = site.host_number(text)
    assert number is None or site.host(number) == text
    place = site.place(0, "/" + text)
    assert place is None or place.page.number < 100


def test_the_rates_are_kept_and_a_first_page_never_fails() -> None:
    rates = {"refuse": 0.1, "not_found": 0.2, "redirect_cross": 0.3}
    site = Site(WebSpec(hosts=10, pages=1000, **rates))  # type: ignore[arg-type]
    fates = Counter(site.fate(page) for page in every_page(site))
    for fate, rate in rates.items():
        assert fates[Fate(fate)] / 10_000 == pytest.approx(rate, abs=0.02)
    assert set(fates) == {Fate.PAGE, *map(Fate, rates)}
    assert {site.fate(SitePage(host, 0)) for host in range(10)} == {Fate.PAGE}


def test_redirects_lead_over_addresses_of_their_own_to_the_page() -> None:
    site = Site(WebSpec(hosts=3, pages=200, redirect_same=0.3, redirect_cross=0.3, redirect_chain=3))
    addresses: Counter[tuple[int, str]] = Counter()
    for page in every_page(site):
        hops = site.hops(page)
        assert len(hops) == (3 if site.fate(page) in (Fate.REDIRECT_SAME, Fate.REDIRECT_CROSS) else 0)
        assert {host == page.host for host, _ in hops} <= {site.fate(page) is Fate.REDIRECT_SAME}
        for hop, (host, path) in enumerate(hops, 1):
            assert site.place(host, path) == (page, hop)
        addresses.update([*hops, (page.host, site.path(page.number))])
    assert set(addresses.values()) == {1}


def test_addresses_of_redirects_that_do_not_exist_stand_for_nothing() -> None:
    site = Site(WebSpec(hosts=2, pages=10))
    for path in ("/r/1/1", "/x/0/1/1", "/p/0", "/p/10", "/p/01", "/p/1/", "/p/1?x=1", "/p/", "/p", "//", "/p/²"):
        assert site.place(0, path) is None


def test_a_page_that_fails_for_good_hides_what_only_it_links_to() -> None:
    spec = WebSpec(hosts=1, pages=400, out_degree=2, not_found=0.2)
    results = expected(Site(spec))
    assert 0 < len(results) < 400
    assert {result.ends for result in results.values()} == {Ends.PAGE, Ends.FAILED}
    assert set(results) < graph(Site(spec))


def test_what_heals_hides_nothing() -> None:
    results = expected(Site(WebSpec(hosts=1, pages=400, out_degree=2, server_error=0.2, errors_once=True)))
    assert len(results) == 400
    assert {result.ends for result in results.values()} == {Ends.PAGE}
    assert 40 < sum(result.heals for result in results.values()) < 120


def test_depth_counts_links_from_the_seeds() -> None:
    site = Site(WebSpec(hosts=2, pages=300))
    for depth in (0, 1, 2):
        results = expected(site, seeds=[0], depth=depth)
        assert max(result.depth for result in results.values()) == depth
    assert set(expected(site, seeds=[0], depth=0)) == {site.url(0)}
    assert set(expected(site, seeds=[0], depth=1)) == {site.url(*link) for link in site.outlinks(SitePage(0, 0))} | {
        site.url(0)
    }


def test_the_scope_keeps_links_and_redirects_inside() -> None:
    site = Site(WebSpec(hosts=2, pages=300, cross_host_share=0.3, redirect_cross=0.2))
    results = expected(site, seeds=[0], scope=[0])
    assert all(url.startswith(site.base(0)) for url in results)
    offsite = [url for url, result in results.items() if result.reason == "offsite"]
    assert offsite
    assert set(offsite) <= fetched(results) <= {url for url in results if url.startswith(site.base(0))}


def test_robots_decide_what_is_asked_for() -> None:
    site = Site(WebSpec(hosts=1, pages=100, robots=(Robots.DISALLOW,), robots_disallow=("/p/7", "/p/12")))
    results = expected(site)
    dropped = {url for url, result in results.items() if result.reason == "robots"}
    assert dropped == {url for url in results if "/p/7" in url or "/p/12" in url}
    assert not dropped & fetched(results)
    assert "robots" not in {result.reason for result in expected(site, obey_robots=False).values()}


def test_a_host_without_readable_robots_waits() -> None:
    site = Site(WebSpec(hosts=2, pages=10, robots=(Robots.ALLOW, Robots.BROKEN)))
    results = expected(site)
    assert results[site.url(1)].ends is Ends.WAITS
    assert len(results) == 11
    assert fetched(results) == {site.url(0, number) for number in range(10)}
