"""The same page under many paths is a refusal; pages that differ for a reader, or name their original, are none."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from gossamer.model.record import PageRefusal
from gossamer.policy.page_fingerprints import fingerprint
from gossamer.policy.refusal_rules import LARGEST_BYTES
from gossamer.policy.repeated_pages import ALIKE, SAME, RepeatedPages

HOST = "shop.test"
BLOCKED = (
    "<html><head><title>Shop</title><script>var t={nonce}</script></head><body><h1>Sorry</h1><p>We have seen unusual "
    "activity. Request {path} has the number 7f3a-{nonce}9911-aa. It is {nonce:02}:12:01.</p>"
    "<a href='/help?from={path}'>Help</a></body>"
)
MANY = 3 * (ALIKE + SAME)
"""Pages that a test sends: more than two refusals in turn need to be found."""


def refused(pages: RepeatedPages, path: str, body: str, *, crawl: str = "a") -> PageRefusal | None:
    """The refusal that a page is, found as a worker does."""
    source = body.encode()
    for _ in range(2):  # the worker asks twice about a page that may be one
        if not pages.may_repeat(crawl, HOST, source):
            return None
    repeat = pages.find(crawl, HOST, source, url=f"https://{HOST}{path}")
    return None if repeat is None else repeat.refusal


def test_the_same_page_under_many_paths_is_a_refusal_from_then_on() -> None:
    pages = RepeatedPages()
    found = [refused(pages, f"/p/{n}", BLOCKED.format(path=f"/p/{n}", nonce=n)) for n in range(MANY)]
    assert found[: ALIKE + SAME] == [None] * (ALIKE + SAME)
    assert [one and one.kind for one in found[ALIKE + SAME :]] == ["same"] * (MANY - ALIKE - SAME)
    assert found[-1] is not None
    assert found[-1].evidence[:3] == [
        "status 200",
        "title Shop",
        f"the same page as at 10 other paths, such as /p/{ALIKE}, after 10 of this title and size",
    ]
    assert refused(pages, "/real", f"<title>Shop</title><h1>Table</h1><p>{'Oak. ' * 200}") is None
    assert refused(pages, "/p/x", BLOCKED.format(path="/p/x", nonce=1)) is not None
    assert refused(pages, "/p/x", BLOCKED.format(path="/p/x", nonce=1), crawl="b") is None


@pytest.mark.parametrize(
    "body",
    [
        '<HTML><HEAD><TITLE>Access Denied</TITLE></HEAD><BODY>No permission to access "http&#58;&#47;&#47;shop&#46;test'
        '&#47;p&#47;{n}" on this server.<P>Reference&#32;&#35;18&#46;{n:x}c351ab8&#46;15573{n:05}&#46;a4e{n:x}</BODY>',
        "<html><body><p>Blocked by policy.</body></html>",
    ],
)
def test_tags_in_capitals_encoded_addresses_and_missing_titles_hide_no_refusal(body: str) -> None:
    pages = RepeatedPages()
    assert [refused(pages, f"/p/{n}", body.format(n=n)) for n in range(MANY)][-1] is not None


def test_pages_about_addresses_of_computers_are_none() -> None:
    pages = RepeatedPages()
    body = "<html><title>Address</title><p>The computer 192.168.0.{n} is on."
    assert {refused(pages, f"/p/{n}", body.format(n=n)) for n in range(MANY)} == {None}


INNOCENT: dict[str, Callable[[int], tuple[str, str]]] = {
    "views of one path": lambda n: (f"/list?page={n}", "<title>List</title><p>Nothing here."),
    "copies that name their original": lambda n: (
        f"/s/{n}/offers", "<title>Offers</title><link rel='canonical' href='/offers'><p>Offers"),
    "pictures": lambda n: (f"/comic/{n}", f"<title>Comic</title><p>Today</p><img src='/i/{n}.png'><a href='/'>All</a>"),
    "months of a calendar": lambda n: (
        f"/cal/{n}", f"<title>Calendar</title><p>No events.</p><a href='/cal/{n + 1}'>next</a>"),
    "short texts": lambda n: (f"/note/{n}", f"<title>Note</title><p>Note number {n}"),
    "badges of users": lambda n: (f"/u/{n}/badges", f"<title>Badges</title><p>None yet.</p><a href='/u/{n}'>user</a>"),
    "forms": lambda n: (f"/vote/{n}", f"<title>Vote</title><form action='/vote/{n}/yes'><button>Yes</button></form>"),
    "titles of their own": lambda n: (f"/p/{n}", f"<title>Page {n}</title><p>To be written."),
    "without titles": lambda n: (f"/p/{n}", "<p>x"),
    "data": lambda n: (f"/p/{n}", "{}"),
    "large": lambda n: (f"/p/{n}", "<title>Shop</title>" + "x" * 300_000),
    "large ones with other data": lambda n: (
        f"/p/{n}", f"<title>Shop</title><div id='app'></div><script>var data = 'chair {n}'</script>{'<p>x' * 20_000}"),
    "three texts in turn": lambda n: (f"/p/{n}", f"<title>Shop</title><p>{'abc'[n % 3]}"),
    "empty days among others": lambda n: (
        f"/day/{n}", f"<title>Diary</title><p>{f'Rain on day {n}.' if n % 3 == 0 else 'Nothing.'}"),
}  # fmt: skip


@pytest.mark.parametrize("name", INNOCENT)
def test_pages_that_only_look_alike_are_none(name: str) -> None:
    pages = RepeatedPages()
    assert not any(refused(pages, *INNOCENT[name](n)) for n in range(MANY))


def test_other_pages_between_them_hide_the_same_page_only_if_they_look_like_it() -> None:
    pages = RepeatedPages()
    found = []
    for n in range(MANY):
        found.append(refused(pages, f"/p/{n}", BLOCKED.format(path=f"/p/{n}", nonce=n)))
        assert refused(pages, f"/q/{n}", f"<title>Page {n}</title><p>{n}") is None
    assert found[-1] is not None


@pytest.mark.parametrize("longer", ["", "x" * 2000], ids=["of one size", "of two sizes"])
def test_two_refusals_in_turn_are_found(longer: str) -> None:
    pages = RepeatedPages()
    bodies = ["<title>Shop</title><p>Are you a robot?", f"<title>Shop</title><p>You may be a robot.{longer}"]
    found = [refused(pages, f"/p/{n}", bodies[n % 2]) for n in range(MANY)]
    assert {one and one.kind for one in found[-2:]} == {"same"}


def test_another_process_knows_the_page_of_a_refusal_by_its_fingerprint() -> None:
    pages, others = RepeatedPages(), RepeatedPages()
    source = b""
    for n in range(MANY):
        source = BLOCKED.format(path=f"/p/{n}", nonce=n).encode()
        pages.may_repeat("a", HOST, source)
        found = pages.find("a", HOST, source, url=f"https://{HOST}/p/{n}")
    assert found is not None
    script = (
        "from gossamer.policy.page_fingerprints import fingerprint; "
        f"print(fingerprint({source.lower()!r}, 'https://{HOST}/p/{MANY - 1}'))"
    )
    alone = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(alone.stdout) == found.text
    for body, kind in ((source.decode(), "same"), ("<title>Shop</title>A table", None)):
        others.remember("a", HOST, body.encode(), text=found.text)
        again = refused(others, f"/p/{MANY - 1}", body)
        assert (again and again.kind) == kind


@pytest.mark.parametrize("part", [b"a-", b"a.", b"a1f.", b"1:1:"])
def test_no_page_makes_the_comparison_take_long(part: bytes) -> None:
    """It took half a minute for such a page. A time that grows with the square of the size does not end here."""
    assert fingerprint(b"<p>" + part * (LARGEST_BYTES // len(part)), f"https://{HOST}/p", whole=True)


def test_old_pages_are_forgotten() -> None:
    pages = RepeatedPages()
    for n in range(5000):
        pages.may_repeat("a", HOST, f"<title>{n}</title>".encode())
    assert len(pages._new) + len(pages._old) <= 2048
