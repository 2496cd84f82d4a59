"""The hostile half: each case answers, alike each time, under names that belong to it alone."""

import zlib
from urllib.parse import urlsplit

import pytest

from gossamer.errors import BadUrl
from gossamer.fakeweb.answer import encode
from gossamer.net.guard import host_address, refusal_reason
from gossamer.policy.urls import canonical, host
from gossamer_fakeweb.hostile.addresses import FORMS, form_url
from gossamer_fakeweb.hostile.bombs import MIB, repeated
from gossamer_fakeweb.hostile.case import Asked
from gossamer_fakeweb.hostile.web import CASES, INDEX, KINDS, Hostile

WEB = Hostile(port=8080, private_port=9090)


def test_there_are_as_many_as_there_should_be() -> None:
    assert len(KINDS["pages"]) >= 30
    assert len(FORMS) >= 60
    assert len(CASES) == sum(map(len, KINDS.values())), "two cases have one name"


@pytest.mark.parametrize("name", CASES)
def test_a_case_answers_the_same_again(name: str) -> None:
    """At its first page, at another, and at its robots.txt; what it sends can be sent."""
    for path in ("/", "/some/page?x=1", "/robots.txt"):
        answer = WEB.answer(f"bad-{name}.test", path)
        assert answer == WEB.answer(f"bad-{name}.test", path)
        if not answer.script:
            encode(answer, head_only=True, close=True)


def test_a_name_leads_to_its_case() -> None:
    assert all(WEB.serves(urlsplit(place.url).hostname or "") for place in WEB.places())
    assert WEB.serves("bad-calendar-17.test")
    assert WEB.serves("deep.below.bad-calendar.test")
    for name in ("bad-nothing.test", "calendar.test", "bad-calendar", "bad-calendar.example", "test", "site0.test"):
        assert not WEB.serves(name), name


def test_the_index_lists_them_all() -> None:
    index = WEB.answer(INDEX, "/").body.decode()
    assert all(place.url in index for place in WEB.places())


def test_no_form_is_a_public_address() -> None:
    """Read as browsers read it, each is refused, no URL, or a name that this machine gives a private address."""
    for form in FORMS:
        try:
            name = host(canonical(form_url(form, 9090)))
        except BadUrl:
            continue
        address = host_address(name)
        if address is None:
            assert name.strip(".") in ("localhost", "-1", ""), form
        else:
            assert refusal_reason(address) is not None, form


def test_private_pages_lead_to_the_private_port() -> None:
    answer = CASES["private-redirect"].answer(Asked("bad-private-redirect-0.test", "/", 0, 8080, 9090))
    assert dict(answer.headers)["Location"] == "http://127.0.0.1:9090/redirect/0"


def test_bombs_are_what_they_say() -> None:
    unpacker = zlib.decompressobj(wbits=31)
    size = 0
    try:
        piece = unpacker.decompress(repeated(3, 31), MIB)
        while piece:
            size += len(piece)
            piece = unpacker.decompress(unpacker.unconsumed_tail, MIB)
    except zlib.error:  # its checksum, at the very end
        pass
    assert size >= 2 * MIB
