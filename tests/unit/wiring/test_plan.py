"""From settings to a crawl: its identity, its terms, its seeds."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import BadInput
from gossamer.model.crawl import Rate, Run
from gossamer.settings import load
from gossamer.settings.crawl import CrawlSettings, parse_rate
from gossamer.wiring.frontier import CrawlNote, known_crawls, read_note, write_note
from gossamer.wiring.plan import Plan, make_plan, parse_expires


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gossamer.toml of the working folder."""
    monkeypatch.chdir(tmp_path)


def plan(*urls: str, crawl_id: str | None = None, **flags: Any) -> Plan:
    # Any program stands for the browser, so that the tests need none.
    flags = {"browser__program": sys.executable, **flags}
    settings = load({name.replace("__", "."): value for name, value in flags.items()})
    return make_plan(settings, urls or ["https://www.example.co.uk/docs/a?b"], crawl_id=crawl_id, now=0.0)


def test_the_id_is_that_of_the_same_seeds_and_questions() -> None:
    one = plan("example.com", "b.test").crawl.id
    assert plan("http://b.test/#x", "HTTP://EXAMPLE.com:80/").crawl.id.crawlid.startswith("b.test-")
    assert plan("http://example.com/", "b.test").crawl.id == one
    assert (
        plan("example.com", "b.test", worker__concurrency=3, crawl__rate="9/1", crawl__output=("x.jsonl",)).crawl.id
        == one
    )
    assert plan("example.com", "b.test", crawl__depth=2).crawl.id != one
    assert plan("example.com", "c.test").crawl.id != one
    assert plan("example.com", crawl_id="mine").crawl.id.crawlid == "mine"
    assert len(plan("https://" + "long." * 12 + "test/").crawl.id.crawlid) <= 40


def test_a_derived_id_is_the_same_in_every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default user agent names the version."""
    pinned = "example.com-983ed531"
    assert plan("example.com").crawl.id.crawlid == pinned
    monkeypatch.setattr("gossamer.wiring.plan.DEFAULT_USER_AGENT", "gossamer/9.9.9")
    assert plan("example.com", fetch__user_agent="gossamer/9.9.9").crawl.id.crawlid == pinned
    assert plan("example.com", fetch__user_agent="mine").crawl.id.crawlid != pinned


OTHER_CRAWLS: dict[str, Any] = {
    "assets": ("images",),
    "max_assets": 7,
    "depth": 2,
    "max_pages": 3,
    "domain_max_pages": 4,
    "scope": "host",
    "allow_domain": ("x.test",),
    "allow": ("/a",),
    "deny": ("/b",),
    "deny_extension": ("pdf",),
    "query_order": "ignored",
    "sitemaps": True,
    "follow_nofollow": True,
    "spider": "wandering",
    "attrs": {"a": 1},
    "text": True,
    "markdown": True,
    "ignore_robots": True,
    "header": {"X-Test": "1"},
    "cookie": "a=b",
    "secret_header": ("X-Test",),
    "headers_for": ("x.test",),
    "extract": {"fields": {"title": "h1"}},
    "field": ("title=h2",),
    "each": ".item",
    "drop_parameter": ("ref",),
    "pattern_max_pages": 10,
    "path_repeats": 1,
    "unique": ("title",),
    "render": "always",
    "render_match": ("/app",),
    "render_step": ("scroll",),
    "render_capture": ("/api/",),
    "render_screenshot": "page",
    "session": "cookies",
}
"""What is asked of the pages: another value makes another crawl."""
OTHER_CONTENT: dict[str, Any] = {"chunk": 300, "text_in": "items"}
"""The same for a crawl with Markdown; without it they are refused."""
WITH: dict[str, dict[str, Any]] = {
    "each": {"crawl__field": ("title=h2",)},
    "unique": {"crawl__field": ("title=h1",)},
    "max_assets": {"crawl__assets": ("pdf",)},
    "render_step": {"crawl__render_match": ("/b",)},
    "render_capture": {"crawl__render_match": ("/b",)},
    "render_screenshot": {"crawl__render_match": ("/b",)},
}
"""Further settings that a setting needs."""
SAME_CRAWL: dict[str, Any] = {
    "assets_to": "x",
    "output": ("x.jsonl",),
    "report": "x.html",
    "csv_guard": True,
    "domain_max_pending": 5,
    "rate": "9/1",
    "domain_concurrency": 6,
    "priority": 7,
    "expires": "12h",
    "links": True,
    "allow_private": True,
    "insecure": True,
    "idle_seconds": 3.0,
    "recrawl": True,
    "recrawl_once": True,
    "recrawl_all": True,
    "budget": "500/1d",
    "recrawl_min": "2h",
    "recrawl_max": "9d",
    "recrawl_rule": ("/x every=1h",),
    "recrawl_window": "* 1-5 * * *",
    "recrawl_zone": "Europe/Berlin",
    "ignore_feeds": True,
    "tell_unchanged": True,
    "versions": 3,
    "index": "x.db",
}
"""How it is carried out, and where its records go."""


def test_of_every_setting_of_a_crawl_it_is_known_whether_it_is_in_the_id() -> None:
    assert OTHER_CRAWLS.keys().isdisjoint(SAME_CRAWL)
    assert OTHER_CRAWLS.keys() | OTHER_CONTENT.keys() | SAME_CRAWL.keys() == CrawlSettings.fields.keys()


def test_the_id_tells_all_questions_apart_and_nothing_else() -> None:
    plain = plan("a.test").crawl.id
    changed = {
        name: plan("a.test", **WITH.get(name, {}), **{f"crawl__{name}": value}).crawl.id
        for name, value in OTHER_CRAWLS.items()
    }
    changed["user_agent"] = plan("a.test", fetch__user_agent="me/1").crawl.id
    for name, value in OTHER_CONTENT.items():
        changed[name] = plan("a.test", crawl__markdown=True, **{f"crawl__{name}": value}).crawl.id
    assert len({plain, *changed.values()}) == 1 + len(changed)
    for name, value in SAME_CRAWL.items():
        assert plan("a.test", **{f"crawl__{name}": value}).crawl.id == plain, name


@pytest.mark.parametrize(
    ("name", "value", "otherwise"),
    [
        ("allow_domain", ("x.test", "y.test"), ("y.test", "x.test")),
        ("allow", ("/a", "/b"), ("/b", "/a")),
        ("deny", ("/a", "/b"), ("/b", "/a")),
        ("deny_extension", ("pdf", "zip"), ("zip", "pdf")),
        ("secret_header", ("X-A", "X-B"), ("x-b", "X-A")),
        ("headers_for", ("x.test", "y.test"), ("y.test", "x.test")),
        ("header", {"X-A": "1", "X-B": "2"}, {"X-B": "2", "X-A": "1"}),
        ("attrs", {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
    ],
)
def test_the_id_does_not_depend_on_the_order_of_what_has_none(name: str, value: Any, otherwise: Any) -> None:
    one = plan("a.test", "b.test", **{f"crawl__{name}": value}).crawl.id
    assert plan("b.test", "a.test", **{f"crawl__{name}": otherwise}).crawl.id == one


def test_each_crawl_has_a_pool_of_its_own() -> None:
    assert plan("a.test").crawl.pool != plan("b.test").crawl.pool


def test_scope_by_name() -> None:
    assert plan().terms.allowed_domains == ("example.co.uk",)
    assert plan(crawl__scope="host").terms.allowed_hosts == ("www.example.co.uk",)
    assert plan(crawl__scope="path").terms.allowed_prefixes == ("https://www.example.co.uk/docs/",)
    assert plan(crawl__scope="any").terms.allowed_domains is None
    assert plan(crawl__allow_domain=("x.test",)).terms.allowed_domains == ("example.co.uk", "x.test")


def test_seeds_are_told_once_and_in_batches_by_domain() -> None:
    batches = list(plan("a.test/1", "a.test/1#x", "b.test", "a.test/2").batches(secret=7))
    assert [(batch.domain, batch.urls) for batch in batches[0]] == [
        ("a.test", ["http://a.test/1", "http://a.test/2"]),
        ("b.test", ["http://b.test/"]),
    ]
    many = plan(*(f"http://a.test/{n}" for n in range(2500)))
    assert [sum(len(batch.urls) for batch in group) for group in many.batches(secret=7)] == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("text", "rate"), [("1/1", Rate(1, 1.0)), ("10/60", Rate(10, 60.0)), ("5", Rate(5, 1.0)), ("1/0.5", Rate(1, 0.5))]
)
def test_rates(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "x", "0/1", "-1/1", "1/0", "1/-1", "1/nan", "1/inf", "1.5/1", "1/1/1", "9" * 20 + "/1", "1/1e-300"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(BadInput):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90", 1090),
        ("90m", 6400),
        ("1.5h", 6400),
        ("1d", 87400),
        ("1970-01-01T01:00", 3600),
        ("1970-01-01T02:00+01:00", 3600),
    ],
)
def test_times(text: str, moment: float) -> None:
    assert parse_expires(text, now=1000.0) == moment


@pytest.mark.parametrize("text", ["", "soon", "-5", "1970-01-01", "1y", "9" * 400, "9999-01-01"])
def test_what_is_no_time_to_come(text: str) -> None:
    with pytest.raises(BadInput):
        parse_expires(text, now=1000.0)


def test_a_note_is_read_back_and_only_its_owner_may(tmp_path: Path) -> None:
    made = plan("a.test")
    note = CrawlNote(run=Run(made.crawl, 2, 1), terms=made.terms, spider="link", outputs=("x.jsonl",))
    write_note(tmp_path / "data", note)
    assert read_note(tmp_path / "data", made.crawl.id.crawlid) == note
    assert read_note(tmp_path / "data", "../../etc/passwd") is None
    assert known_crawls(tmp_path / "data") == [made.crawl.id.crawlid]
    (path,) = (tmp_path / "data" / "crawls").iterdir()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("number", "text"), [("100", "100/1"), ("0.5", "1/2"), ("2.0", "2/1")])
def test_a_rate_in_the_file_may_be_a_number(number: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text(f"[crawl]\nrate = {number}\n")
    assert load(config=file).crawl.rate == text
