"""The rules of robots.txt by RFC 9309: which group, which rule, how the patterns match, what bad files do."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.robots_rules import NO_RULE, RobotsRules
from gossamer.policy.robots import MAX_BYTES, product_token

UA = "gossamer/0.1 (+https://example.org)"


def robots(text: str) -> RobotsRules:
    """A file written with the test's indentation."""
    return RobotsRules(textwrap.dedent(text).encode())


def rules(*lines: str) -> RobotsRules:
    """A file with one group for everybody."""
    return RobotsRules("\n".join(["User-agent: *", *lines]).encode())


RFC_EXAMPLE = robots(
    """\
    User-Agent: *
    Disallow: *.gif$
    Disallow: /example/
    Allow: /publications/

    User-Agent: foobot
    Disallow:/
    Allow:/example/page.html
    Allow:/example/allowed.gif

    User-Agent: barbot
    User-Agent: bazbot
    Disallow: /example/page.html

    User-Agent: quxbot
    """
)


@pytest.mark.parametrize(
    ("agent", "path", "allowed", "rule"),
    [
        ("foobot", "/example/page.html", True, "Allow: /example/page.html"),
        ("foobot", "/example/allowed.gif", True, "Allow: /example/allowed.gif"),
        ("foobot", "/publications/", False, "Disallow: /"),
        ("FooBot/1.0", "/", False, "Disallow: /"),
        ("barbot", "/example/page.html", False, "Disallow: /example/page.html"),
        ("bazbot", "/example/page.html", False, "Disallow: /example/page.html"),
        ("bazbot", "/a.gif", True, NO_RULE),
        ("quxbot", "/example/x.gif", True, NO_RULE),
        ("other", "/example/x", False, "Disallow: /example/"),
        ("other", "/pictures/a.gif", False, "Disallow: *.gif$"),
        ("other", "/pictures/a.gif?size=1", True, NO_RULE),
        ("other", "/publications/a", True, "Allow: /publications/"),
        ("other", "/elsewhere", True, NO_RULE),
    ],
)
def test_the_simple_example_of_the_rfc(agent: str, path: str, allowed: bool, rule: str) -> None:
    """RFC 9309, section 5.1."""
    verdict = RFC_EXAMPLE.verdict(path, agent)
    assert (verdict.allowed, verdict.rule) == (allowed, rule)


def test_the_longest_match_of_the_rfc() -> None:
    """RFC 9309, section 5.2: the most specific rule decides, not the first."""
    found = rules("Allow: /example/page/", "Disallow: /example/page/disallowed.gif")
    assert not found.allowed("https://a.test/example/page/disallowed.gif", UA)
    assert found.allowed("https://a.test/example/page/", UA)


@pytest.mark.parametrize(
    ("lines", "path", "allowed", "rule"),
    [
        (["Disallow: /a", "Allow: /a"], "/a", True, "Allow: /a"),
        (["Allow: /a", "Disallow: /a"], "/a", True, "Allow: /a"),
        (["Disallow: /", "Allow: /a/b", "Disallow: /a"], "/a/b/c", True, "Allow: /a/b"),
        (["Disallow: /", "Allow: /a/b", "Disallow: /a"], "/a/c", False, "Disallow: /a"),
        (["Disallow: /a/b", "Allow: /a"], "/a/b", False, "Disallow: /a/b"),
        (["Allow: /p", "Disallow: /"], "/page", True, "Allow: /p"),
        (["Allow: /folder", "Disallow: /folder"], "/folder/page", True, "Allow: /folder"),
        (["Allow: /page", "Disallow: /*.htm"], "/page.htm", False, "Disallow: /*.htm"),
        (["Allow: /$", "Disallow: /"], "/", True, "Allow: /$"),
        (["Allow: /$", "Disallow: /"], "/page", False, "Disallow: /"),
        (["Disallow:"], "/a", True, NO_RULE),
        (["Disallow: /a", "Disallow:"], "/a", False, "Disallow: /a"),
        (["Allow:", "Disallow: /"], "/a", False, "Disallow: /"),
        (["Disallow: /robots.txt", "Disallow: /"], "/robots.txt", True, "/robots.txt is always allowed"),
    ],
)
def test_precedence(lines: list[str], path: str, allowed: bool, rule: str) -> None:
    """RFC 9309, section 2.2.2: the longest, and Allow where two are equal; an empty pattern matches nothing."""
    verdict = rules(*lines).verdict(path, UA)
    assert (verdict.allowed, verdict.rule) == (allowed, rule)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/fish", ["/fish", "/fish.html", "/fishheads/a", "/fish?id=1"], ["/Fish", "/catfish", "/?id=fish"]),
        ("/fish*", ["/fish", "/fish.html", "/fishheads/a"], ["/Fish", "/catfish"]),
        ("/fish/", ["/fish/", "/fish/?id=1"], ["/fish", "/fish.html"]),
        ("/*.php", ["/a.php", "/a/b.php?x", "/a.php/", "/a.phps"], ["/", "/a.PHP"]),
        ("/*.php$", ["/a.php", "/a/b.php"], ["/a.php?x", "/a.php/", "/a.php5"]),
        ("/fish*.php", ["/fish.php", "/fishheads/cat.php?x"], ["/Fish.php"]),
        ("*/private/", ["/private/", "/a/private/b"], ["/private"]),
        ("/a$b", ["/a$b", "/a$bc"], ["/a"]),
        ("/a**b", ["/ab", "/axxb"], ["/a"]),
        ("/*?", ["/a?", "/?x=1"], ["/a"]),
        ("/*/*/c$", ["/a/b/c", "/a/b/d/c"], ["/a/c", "/a/b/c/"]),
        ("private", [], ["/private", "/a/private"]),
        ("/a;b", ["/a;b", "/a;b?c"], ["/a"]),
        ("//a", ["//a", "//a/b"], ["/a", "/x//a"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    """RFC 9309, section 2.2.3: a prefix, `*` for anything, `$` for the end; the query counts, the case too."""
    found = rules(f"Disallow: {pattern}")
    for path in matching:
        assert found.verdict(path, UA).rule == f"Disallow: {pattern}", path
        assert not found.allowed(f"https://a.test{path}", UA), path
    for path in others:
        assert found.allowed(path, UA), path


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
        ("/foo/bar/baz", "/foo/bar/%62%61%7A", True),
        ("/a%2Fb", "/a/b", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", True),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-x.html", False),
        ("/path/foo-%24", "/path/foo-$", True),
        ("/a b", "/a%20b", True),
        ("/100%", "/100%", True),
    ],
)
def test_percent_encoding(pattern: str, path: str, matches: bool) -> None:
    """RFC 9309, section 2.2.2's table, and its special characters of section 2.2.3."""
    assert rules(f"Disallow: {pattern}").allowed(path, UA) is not matches


def test_groups_for_one_agent_are_merged_and_spelled_in_any_case() -> None:
    """RFC 9309, section 2.2.1: also where other groups stand between them."""
    found = robots(
        """\
        user-AGENT: Gossamer
        disallow: /a

        User-agent: other
        Disallow: /b

        USER-AGENT: GOSSAMER/9.9 is a crawler
        DISALLOW: /c
        Crawl-Delay: 2
        """
    )
    assert [found.allowed(path, UA) for path in ("/a", "/b", "/c", "/d")] == [False, True, False, True]
    assert found.verdict("/", "GOSSAMER").crawl_delay == 2


def test_the_own_group_replaces_the_one_for_everybody() -> None:
    """And a group with only an empty Disallow allows everything."""
    found = robots("User-agent: *\nDisallow: /\n\nUser-agent: gossamer\nDisallow:\n")
    assert found.allowed("/a", UA)
    assert not found.allowed("/a", "other")


@pytest.mark.parametrize("name", ["goss", "gossamerbot", "mygossamer", "gossamer2", "https", "example.org"])
def test_a_group_for_a_similar_name_is_not_ours(name: str) -> None:
    """The product token is compared whole; what else the header says is no name of ours."""
    assert robots(f"User-agent: {name}\nDisallow: /").allowed("/a", UA)


def test_rules_before_any_user_agent_and_lines_in_between() -> None:
    """The first apply to nobody; comments, blank lines, unknown fields and sitemaps do not end a group."""
    found = robots(
        """\
        Disallow: /nobody
        # comment
        User-agent: other   # with a comment

        Sitemap: https://a.test/sitemap.xml
        Noindex: /x
        User-agent: gossamer
        Disallow: /a # here too
        nonsense
        : empty

        Disallow: /b
        """
    )
    assert [found.allowed(path, UA) for path in ("/nobody", "/a", "/b")] == [True, False, False]
    assert not found.allowed("/a", "other")


def test_a_crawl_delay_ends_the_list_of_agents() -> None:
    """`User-agent, Crawl-delay, User-agent, Disallow` are two groups: what their authors mean."""
    found = robots("User-agent: gossamer\nCrawl-delay: 5\n\nUser-agent: other\nDisallow: /\n")
    assert found.verdict("/", UA).allowed
    assert found.verdict("/", UA).crawl_delay == 5
    assert found.verdict("/", "other").crawl_delay is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1),
        ("0.5", 0.5),
        ("0", 0),
        ("60", 60),
        ("3600", 60),
        ("-1", None),
        ("", None),
        ("x", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
    ],
)
def test_crawl_delay(value: str, seconds: float | None) -> None:
    """Up to the cap of a minute; nonsense counts as not said."""
    assert rules(f"Crawl-delay: {value}").verdict("/", UA).crawl_delay == seconds


def test_of_several_crawl_delays_the_longest_counts() -> None:
    """Whatever their order."""
    assert rules("Crawl-delay: 7", "Crawl-delay: 3").verdict("/", UA).crawl_delay == 7


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_the_byte_order_mark(end: str) -> None:
    """RFC 9309, section 2.2: LF, CR and CRLF; a mark at the beginning does not hide the first line."""
    found = RobotsRules(b"\xef\xbb\xbf" + end.join(["User-agent: *", "Disallow: /a", "Disallow: /b"]).encode())
    assert [found.allowed(path, UA) for path in ("/a", "/b", "/c")] == [False, False, True]


def test_only_line_ends_end_a_line() -> None:
    """A vertical tab, a form feed or a Unicode separator within a pattern begins no new line."""
    for separator in ("\x0b", "\x0c", "\x1c", "\x85", "\u2028"):
        assert not rules("Disallow: /a", f"Disallow: /b{separator}Allow: /a").allowed("/a", UA)


def test_bytes_that_are_no_utf8() -> None:
    """A pattern in Latin-1 matches the same bytes in the URL, and harms nothing else."""
    found = RobotsRules(b"User-agent: *\nDisallow: /caf\xe9\n\xff\xfe: \x00\nDisallow: /b")
    assert [found.allowed(path, UA) for path in ("/caf%E9", "/b", "/c")] == [False, False, True]


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\xef\xbb\xbf", b"# nothing", b"<html><body>Not found</body></html>"])
def test_a_file_without_rules_allows_everything(body: bytes) -> None:
    """Also an error page served as 200."""
    verdict = RobotsRules(body).verdict("/a", UA)
    assert (verdict.allowed, verdict.rule, verdict.crawl_delay) == (True, NO_RULE, None)


@pytest.mark.parametrize("line", ["Dissallow: /a", "Disallow /a", "disallow\t/a", "Disallow : /a", "  Disallow:/a"])
def test_common_slips_are_understood(line: str) -> None:
    """What the author meant is plain."""
    assert not rules(line).allowed("/a", UA)


def test_the_size_limit_leaves_no_half_line() -> None:
    """500 KiB are read; the line that is cut is not taken for a shorter one."""
    head = b"User-agent: *\nDisallow: /early\n"
    filler = b"#" * (MAX_BYTES - len(head) - len(b"\nDisallow: /")) + b"\n"
    found = RobotsRules(head + filler + b"Disallow: /late\nDisallow: /later\n")
    assert not found.allowed("/early", UA)
    assert found.allowed("/late", UA)
    assert found.allowed("/other", UA)
    assert RobotsRules(b"User-agent: *\nDisallow: /", truncated=True).allowed("/a", UA)


def test_sitemaps_are_urls_of_any_group() -> None:
    """In the order of the file, canonical, without repeats, relative ones by the file's own URL; others are counted."""
    text = """\
        Sitemap: https://A.test/one.xml
        User-agent: other
        Disallow: /
        sitemap: http://b.test/two.xml.gz?x=1#y
        Sitemap: /relative.xml
        Sitemap: ftp://a.test/three.xml
        Sitemap: https://A.test/one.xml
        Sitemap:
        """
    body = textwrap.dedent(text).encode()
    found = RobotsRules(body)
    assert found.sitemaps == ("https://a.test/one.xml", "http://b.test/two.xml.gz?x=1")
    assert found.invalid_sitemaps == 2
    found = RobotsRules(body, url="https://c.test/robots.txt")
    assert found.sitemaps == (
        "https://a.test/one.xml", "http://b.test/two.xml.gz?x=1", "https://c.test/relative.xml",
    )  # fmt: skip
    assert found.invalid_sitemaps == 1


def test_sitemaps_are_listed_once_however_far_apart_they_repeat() -> None:
    addresses = [f"https://a.test/{number}.xml" for number in range(200)]
    assert robots("".join(f"Sitemap: {address}\n" for address in addresses * 2)).sitemaps == tuple(addresses)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("gossamer/0.1 (+https://example.org)", "gossamer"),
        ("Foo-Bot_x", "foo-bot_x"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://foo.test/bot)", "foobot"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "mozilla"),
        ("bot2/1.0", "bot2"),
        ("", ""),
        ("(nothing)", ""),
    ],
)
def test_product_token(user_agent: str, token: str) -> None:
    """The name by which a file would address it."""
    assert product_token(user_agent) == token


def test_many_user_agents_do_not_fill_the_memory() -> None:
    """And the answers stay right."""
    found = robots("User-agent: bot7\nDisallow: /")
    assert [n for n in range(100) if not found.allowed("/", f"bot{n}")] == [7]


_path = st.text(alphabet="ab/*$?%.é", max_size=8).map(lambda text: "/" + text)


@given(st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), _path), max_size=6), _path)
def test_the_verdict_and_its_rule_agree(lines: list[tuple[str, str]], path: str) -> None:
    """A refusal always names a Disallow of the file; what is allowed names an Allow or says that no rule applies."""
    found = rules(*(f"{kind}: {pattern}" for kind, pattern in lines))
    verdict = found.verdict(path, UA)
    assert verdict.allowed == found.allowed(path, UA)
    assert verdict.rule.startswith("Disallow: ") is not verdict.allowed
    assert verdict == found.verdict(f"https://a.test{path}", UA)


@given(st.binary(max_size=300), st.text(max_size=20))
def test_no_file_raises(body: bytes, user_agent: str) -> None:
    """Whatever its bytes."""
    RobotsRules(b"User-agent: *\nDisallow: " + body).verdict("/a", user_agent)
    RobotsRules(body).verdict("/a", user_agent)
