"""RFC 9309 as a table: what a file says, of whom and of which path, with the section that says so.

What answers, redirects, caching and outages mean is in tests/integration/test_robots_rfc9309.py.
"""

from typing import NamedTuple

import pytest

from gossamer.fetch.robots_rules import RobotsRules
from gossamer.policy.robots import MAX_BYTES

UA = "gossamer/0.1 (+https://example.org/bot)"


class Case(NamedTuple):
    section: str
    what: str
    file: str | bytes
    path: str
    allowed: bool
    agent: str = UA


def everybody(rules: str) -> str:
    return f"User-agent: *\n{rules}"


def ours(value: str) -> str:
    """A file that closes the site for that agent and opens it for all others."""
    return f"User-agent: {value}\nDisallow: /\n"


FOO_BAR = "User-agent: foobot\nDisallow: /f\n\nUser-agent: *\nDisallow: /x\n\nUser-agent: barbot\nDisallow: /b\n"
GROUPS = [
    Case("2.2", "line by line: LF", "User-agent: *\nDisallow: /a\nDisallow: /b\n", "/b", False),
    Case("2.2", "line by line: CRLF", "User-agent: *\r\nDisallow: /a\r\nDisallow: /b\r\n", "/b", False),
    Case("2.2", "line by line: CR", "User-agent: *\rDisallow: /a\rDisallow: /b\r", "/b", False),
    Case("2.2", "line ends mixed", "User-agent: *\r\n\rDisallow: /a\n\r\nDisallow: /b", "/b", False),
    Case("2.2", "the last line without an end", "User-agent: *\nDisallow: /a", "/a", False),
    Case("2.2", "a byte order mark", b"\xef\xbb\xbfUser-agent: *\nDisallow: /", "/a", False),
    Case("2.2", "a byte order mark and CRLF", b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /\r\n", "/a", False),
    Case("2.2", "white space around everything", " \tUser-agent \t:\t * \n  Disallow\t:  /a \t", "/a", False),
    Case("2.2", "no white space", "User-agent:*\nDisallow:/a", "/a", False),
    Case("2.2", "a comment behind a rule", everybody("Disallow: /a#b"), "/a", False),
    Case("2.2", "a comment with a rule in it", everybody("# Disallow: /a"), "/a", True),
    Case("2.2", "a comment behind a name", "User-agent: gossamer # us\nDisallow: /", "/a", False),
    Case("2.2", "an empty pattern", everybody("Disallow:"), "/a", True),
    Case("2.2", "an empty pattern and a comment", everybody("Disallow: # nothing"), "/a", True),
    Case("2.2", "fields in any case", "uSER-aGENT: *\ndISALLOW: /", "/a", False),
    Case("2.2", "an empty file", "", "/a", True),
    Case("2.2", "only comments", "# one\n# two\n", "/a", True),
    Case("2.2", "blank lines within a group", "User-agent: *\n\n\nDisallow: /a\n\nDisallow: /b", "/b", False),
    Case("2.2.1", "the name in another case", ours("GOSSAMER"), "/a", False),
    Case("2.2.1", "the header in another case", ours("gossamer"), "/a", False, "GoSSamer/9"),
    Case("2.2.1", "the name with a version", ours("gossamer/1.0"), "/a", False),
    Case("2.2.1", "the name with more words", ours("gossamer the crawler"), "/a", False),
    Case("2.2.1", "the name is not a substring", ours("goss"), "/a", True),
    Case("2.2.1", "the name is not a longer one", ours("gossamer-news"), "/a", True),
    Case("2.2.1", "the longer name is not the shorter one", ours("gossamer"), "/a", True, "gossamer-news/1"),
    Case("2.2.1", "underscores and hyphens belong to it", ours("my_bot-x"), "/a", False, "My_Bot-X/2"),
    Case("2.2.1", "the comment of the header is not the name", ours("example"), "/a", True),
    Case("2.2.1", "the name within a browser's", ours("foobot"), "/a", False, "Mozilla/5.0 (compatible; FooBot/2.1)"),
    Case("2.2.1", "the own group alone", FOO_BAR, "/x", True, "foobot"),
    Case("2.2.1", "the own group", FOO_BAR, "/f", False, "foobot/1"),
    Case("2.2.1", "the own group after the one for everybody", FOO_BAR, "/b", False, "barbot"),
    Case("2.2.1", "everybody's where there is none", FOO_BAR, "/x", False, "bazbot"),
    Case("2.2.1", "everybody's without a name", FOO_BAR, "/x", False, ""),
    Case("2.2.1", "not another's", FOO_BAR, "/f", True, "bazbot"),
    Case("2.2.1", "no group at all", "User-agent: foobot\nDisallow: /", "/a", True),
    Case(
        "2.2.1",
        "groups of a name together: the first",
        ours("gossamer") + "User-agent: gossamer\nAllow: /b",
        "/a",
        False,
    ),
    Case(
        "2.2.1",
        "groups of a name together: the second",
        ours("gossamer") + "User-agent: gossamer\nAllow: /b",
        "/b",
        True,
    ),
    Case(
        "2.2.1",
        "with another's between",
        "User-agent: gossamer\nDisallow: /a\n" + FOO_BAR + "User-agent: gossamer\nDisallow: /c",
        "/c",
        False,
    ),
    Case(
        "2.2.1",
        "and not the one between",
        "User-agent: gossamer\nDisallow: /a\n" + FOO_BAR + "User-agent: gossamer\nDisallow: /c",
        "/b",
        True,
    ),
    Case(
        "2.2.1", "everybody's groups together", everybody("Disallow: /a\n") + everybody("Disallow: /b\n"), "/a", False
    ),
    Case(
        "2.2.1",
        "several names, the first",
        "User-agent: foobot\nUser-agent: gossamer\nDisallow: /",
        "/a",
        False,
        "foobot",
    ),
    Case("2.2.1", "several names, the last", "User-agent: foobot\nUser-agent: gossamer\nDisallow: /", "/a", False),
    Case("2.2.1", "the same name twice", "User-agent: gossamer\nUser-agent: Gossamer\nDisallow: /", "/a", False),
    Case("2.2.1", "a name and everybody", "User-agent: gossamer\nUser-agent: *\nDisallow: /", "/a", False, "foobot"),
    Case("2.2.1", "everybody, and words", ours("* (all of you)"), "/a", False),
    Case("2.2.1", "an empty name", ours(""), "/a", True),
    Case("2.2.1", "a group without rules", "User-agent: gossamer\n\nUser-agent: *\nDisallow: /", "/a", False),
    Case("2.2.1", "an empty group at the end", "User-agent: *\nDisallow: /\n\nUser-agent: gossamer", "/a", True),
    Case("2.2.1", "rules before any name", "Disallow: /\nUser-agent: foobot\nDisallow: /x", "/a", True, "foobot"),
]

PRECEDENCE = [
    Case("2.2.2", "the longer allows", everybody("Disallow: /a\nAllow: /a/b"), "/a/b/c", True),
    Case("2.2.2", "the longer forbids", everybody("Allow: /a\nDisallow: /a/b"), "/a/b/c", False),
    Case("2.2.2", "the order of lines is nothing", everybody("Allow: /a/b\nDisallow: /a"), "/a/b", True),
    Case("2.2.2", "allow where both are one", everybody("Disallow: /a\nAllow: /a"), "/a", True),
    Case("2.2.2", "allow where both are as long", everybody("Disallow: /*a\nAllow: /ba"), "/ba", True),
    Case("2.2.2", "three levels", everybody("Disallow: /\nAllow: /a/\nDisallow: /a/b/"), "/a/b/c", False),
    Case("2.2.2", "a wildcard counts as an octet", everybody("Allow: /a/b\nDisallow: /a/b*"), "/a/bc", False),
    Case("2.2.2", "an anchor counts as an octet", everybody("Allow: /a/b\nDisallow: /a/b$"), "/a/b", False),
    Case("2.2.2", "octets, not characters", everybody("Disallow: /é\nAllow: /%C3%A9"), "/%C3%A9", True),
    Case("2.2.2", "octets as compared, not as written", everybody("Disallow: /%61%62c\nAllow: /abc"), "/abc", True),
    Case("2.2.2", "nothing matches", everybody("Disallow: /a"), "/b", True),
    Case("2.2.2", "no rules", everybody(""), "/b", True),
    Case("2.2.2", "/robots.txt itself", everybody("Disallow: /"), "/robots.txt", True),
    Case("2.2.2", "only that spelling of it", everybody("Disallow: /"), "/ROBOTS.TXT", False),
    Case("2.2.2", "not with a query", everybody("Disallow: /"), "/robots.txt?x", False),
    Case("2.2.2", "paths are told apart by case", everybody("Disallow: /A"), "/a", True),
    Case("2.2.2", "an index page is not its folder", everybody("Disallow: /\nAllow: /index.html"), "/", False),
    Case("2.2.2", "a prefix, not a segment", everybody("Disallow: /a"), "/abc", False),
    Case("2.2.2", "the query counts", everybody("Disallow: /a?b"), "/a?bc", False),
    Case("2.2.2", "another query does not", everybody("Disallow: /a?b"), "/a?c", True),
    Case("2.2.2", "the fragment does not", everybody("Disallow: /a$"), "/a#b", False),
    Case("2.2.2", "a pattern without a slash", everybody("Disallow: a"), "/a", True),
    Case("2.2.2", "a pattern that is a URL", everybody("Disallow: http://a.test/a"), "/a", True),
]

ENCODING = [
    Case("2.2.2", "table, line 1", everybody("Disallow: /foo/bar?baz=quz"), "/foo/bar?baz=quz", False),
    Case(
        "2.2.2",
        "table, line 2: pattern raw, URL encoded",
        everybody("Disallow: /foo/bar?baz=https://foo.bar"),
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        False,
    ),
    Case(
        "2.2.2",
        "table, line 2: both encoded",
        everybody("Disallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        False,
    ),
    Case(
        "2.2.2",
        "table, line 2: both raw",
        everybody("Disallow: /foo/bar?baz=https://foo.bar"),
        "/foo/bar?baz=https://foo.bar",
        False,
    ),
    Case(
        "2.2.2",
        "table, line 2: pattern encoded, URL raw",
        everybody("Disallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        "/foo/bar?baz=https://foo.bar",
        False,
    ),
    Case(
        "2.2.2",
        "table, line 2: through a wildcard",
        everybody("Disallow: /*baz=https%3A%2F%2F"),
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        False,
    ),
    Case("2.2.2", "table, line 3", everybody("Disallow: /foo/bar/ツ"), "/foo/bar/%E3%83%84", False),
    Case("2.2.2", "table, line 4", everybody("Disallow: /foo/bar/%E3%83%84"), "/foo/bar/%E3%83%84", False),
    Case("2.2.2", "table, line 5", everybody("Disallow: /foo/bar/%62%61%7A"), "/foo/bar/baz", False),
    Case("2.2.2", "the URL encoded for nothing", everybody("Disallow: /foo/bar/baz"), "/foo/bar/%62%61%7A", False),
    Case("2.2.2", "hexadecimal digits in any case", everybody("Disallow: /%e3%83%84"), "/%E3%83%84", False),
    Case("2.2.2", "an unencoded tilde", everybody("Disallow: /~joe"), "/%7Ejoe", False),
    Case("2.2.2", "an encoded tilde", everybody("Disallow: /%7ejoe"), "/~joe", False),
    Case("2.2.2", "a slash in a path is not an encoded one", everybody("Disallow: /a%2Fb"), "/a/b", True),
    Case("2.2.2", "nor the other way", everybody("Disallow: /a/b"), "/a%2Fb", True),
    Case("2.2.2", "an encoded question mark begins no query", everybody("Disallow: /a?b"), "/a%3Fb", True),
    Case("2.2.2", "a reserved character", everybody("Disallow: /a:b"), "/a%3Ab", False),
    Case("2.2.2", "a percent sign by itself", everybody("Disallow: /100%"), "/100%", False),
    Case("2.2.2", "a percent sign, encoded once and twice", everybody("Disallow: /%2541"), "/A", True),
    Case("2.2.2", "a space", everybody("Disallow: /a b"), "/a%20b", False),
    Case("2.2.2", "octets that are no UTF-8", b"User-agent: *\nDisallow: /caf\xe9", "/caf%E9", False),
    Case("2.2.2", "half a character", everybody("Disallow: /%E3%83"), "/%E3%83%84", False),
    Case("2.2.2", "a host name's letters in a query", everybody("Disallow: /?u=bücher"), "/?u=b%C3%BCcher", False),
]

SPECIAL = [
    Case(
        "2.2.3",
        "table: an encoded asterisk",
        everybody("Disallow: /path/file-with-a-%2A.html"),
        "/path/file-with-a-*.html",
        False,
    ),
    Case(
        "2.2.3",
        "an encoded asterisk is not any",
        everybody("Disallow: /path/file-with-a-%2A.html"),
        "/path/file-with-a-b.html",
        True,
    ),
    Case("2.2.3", "table: an encoded dollar", everybody("Disallow: /path/foo-%24"), "/path/foo-$", False),
    Case("2.2.3", "an encoded dollar is no end", everybody("Disallow: /path/foo-%24"), "/path/foo-", True),
    Case("2.2.3", "an asterisk in the URL", everybody("Disallow: /a*c"), "/a*bc", False),
    Case("2.2.3", "any number of characters", everybody("Disallow: /a*z"), "/a/b/c?d=z", False),
    Case("2.2.3", "also none", everybody("Disallow: /a*z"), "/az", False),
    Case("2.2.3", "in the beginning", everybody("Disallow: *.gif"), "/a/b.gif", False),
    Case("2.2.3", "at the end it changes nothing", everybody("Disallow: /a*"), "/ab", False),
    Case("2.2.3", "several", everybody("Disallow: /*/*/c"), "/a/b/c", False),
    Case("2.2.3", "several, one too few", everybody("Disallow: /*/*/c"), "/a/c", True),
    Case("2.2.3", "in a row", everybody("Disallow: /a***b"), "/axb", False),
    Case("2.2.3", "they do not overlap", everybody("Disallow: /*ab*ab$"), "/ab", True),
    Case("2.2.3", "the last part may come twice", everybody("Disallow: /*.php$"), "/a.php/b.php", False),
    Case("2.2.3", "the end", everybody("Disallow: /a$"), "/a", False),
    Case("2.2.3", "not before the end", everybody("Disallow: /a$"), "/ab", True),
    Case("2.2.3", "the end is behind the query", everybody("Disallow: /*.gif$"), "/a.gif?x", True),
    Case("2.2.3", "a dollar within is itself", everybody("Disallow: /a$b"), "/a$bc", False),
    Case("2.2.3", "a dollar at the end is not itself", everybody("Disallow: /a$"), "/a$", True),
    Case("2.2.3", "only a dollar", everybody("Disallow: $"), "/", True),
    Case("2.2.3", "only the root", everybody("Disallow: /$"), "/", False),
    Case("2.2.3", "only an asterisk", everybody("Disallow: *"), "/", False),
    Case("2.2.3", "an encoded hash begins no comment", everybody("Disallow: /a%23b"), "/a%23b", False),
]

OTHERS = [
    Case("2.2.4", "sitemaps end no group", everybody("Sitemap: https://a.test/s.xml\nDisallow: /"), "/a", False),
    Case(
        "2.2.4",
        "nor part the names of one",
        "User-agent: foobot\nSitemap: x\nUser-agent: gossamer\nDisallow: /",
        "/a",
        False,
        "foobot",
    ),
    Case("2.2.4", "unknown lines end no group", everybody("Clean-param: a\nHost: a.test\nDisallow: /"), "/a", False),
    Case(
        "2.2.4",
        "unknown lines part no names",
        "User-agent: foobot\nNoindex: /\nUser-agent: gossamer\nDisallow: /",
        "/a",
        False,
        "foobot",
    ),
    Case("2.2.4", "a sitemap before all", "Sitemap: https://a.test/s.xml\n" + everybody("Disallow: /"), "/a", False),
    Case("2.3.1.5", "lines that mean nothing", everybody("<html>\n: x\n:\n\x00\x01\nDisallow: /"), "/a", False),
    Case("2.3.1.5", "bytes that are no text", b"\xff\xfe\x00\nUser-agent: *\n\x80\x81: \xff\nDisallow: /", "/a", False),
    Case("2.3.1.5", "a page instead of rules", "<!doctype html>\n<title>Not found</title>\n<p>Disallow: /", "/a", True),
    Case("2.3.1.5", "without a colon", "User-agent *\nDisallow /", "/a", False),
    Case("2.3.1.5", "misspelt", "Useragent: *\nDissallow: /", "/a", False),
    Case("2.5", "500 KiB are read", everybody("#" * (MAX_BYTES - 100) + "\nDisallow: /"), "/a", False),
    Case(
        "2.5", "what is cut is no rule", everybody("#" * (MAX_BYTES - 14 - 12) + "\nDisallow: /private\n"), "/a", True
    ),
    Case("2.5", "a long line is read", everybody("Disallow: /" + "a" * 100_000 + "\nDisallow: /b"), "/b", False),
    Case("2.5", "many rules are read", everybody("\n".join(f"Disallow: /{n}" for n in range(20_000))), "/19999", False),
    Case(
        "2.5",
        "many names are read",
        "".join(f"User-agent: bot{n}\n" for n in range(20_000)) + "Disallow: /",
        "/a",
        False,
        "bot19999",
    ),
]

CASES = [*GROUPS, *PRECEDENCE, *ENCODING, *SPECIAL, *OTHERS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.section}: {case.what}")
def test_rfc_9309(case: Case) -> None:
    """By path alone and within a URL; and the rule that is told fits the verdict."""
    found = RobotsRules(case.file.encode() if isinstance(case.file, str) else case.file)
    verdict = found.verdict(case.path, case.agent)
    assert verdict.allowed is case.allowed
    assert found.allowed(f"https://a.test:8443{case.path}", case.agent) is case.allowed
    assert verdict.rule.startswith("Disallow: ") is not case.allowed


def test_each_case_has_a_name_of_its_own() -> None:
    """So that a failure says which it is."""
    assert len({(case.section, case.what) for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "body",
    [
        # Each of the names with each of the rules would be hundreds of millions.
        b"".join(b"User-agent: b%d\n" % n for n in range(18_000)) + b"Disallow: /x\n" * 10_000,
        b"User-agent: gossamer\n" * 14_000 + b"Disallow: /x\n" * 10_000,
        b"User-agent: gossamer\nDisallow: /x\n" * 14_000,
        # What a matcher that goes back and forth does not end with.
        b"User-agent: *\nDisallow: /" + b"a*" * 200_000 + b"b\n",
        b"User-agent: *\n" + b"Allow:*z\n" * 50_000,
        b"User-agent: *\nDisallow: /" + b"$" * 400_000 + b"\n",
        b"\r" * 500_000,
    ],
    ids=["names", "one name", "groups", "asterisks", "wildcards", "dollars", "lines"],
)
def test_no_file_costs_much_more_than_its_size(body: bytes) -> None:
    """Section 3: a file must not harm who reads it. Counted in what is kept; a product would not come to an end."""
    found = RobotsRules(body)
    assert found.allowed("/" + "a" * 2000, UA)
    assert len(found._matcher(UA)) <= 10_000


def test_many_agents_of_a_large_file_do_not_fill_the_memory() -> None:
    """Their rules are made ready anew."""
    found = RobotsRules(b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % n for n in range(20_000)))
    for agent in range(10):
        assert not found.allowed("/19999", f"bot{agent}")
        assert sum(map(len, found._matchers.values())) <= 50_000
