"""Webs without end: every page links to new pages, or every redirect leads to another one.

Cases may be added freely; their names are fixed. Addresses are made from the request alone: the server stores nothing,
however far a crawler goes, and a repeated crawl meets the same addresses.
"""

from gossamer.fakeweb.answer import Answer, html, plain, redirect
from gossamer_fakeweb.hostile.case import Asked, Case, Cases, always, links

_LINKS_A_PAGE = 20
"""Links on most endless pages. More let a trap grow faster."""
_REDIRECT_STEPS = 30
"""Redirects before the page of `redirect-steps`. Must exceed the redirects that crawlers follow (commonly 20)."""


def _digest(text: str) -> int:
    """Return 64 bits that depend on the text alone."""
    number = 0xCBF29CE484222325  # FNV-1a
    for byte in text.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number


def _calendar(asked: Asked) -> Answer:
    month = int(asked.path.rpartition("=")[2]) if asked.path.rpartition("=")[2].isdecimal() else 0
    return links(*(f"/calendar?month={month + step}" for step in range(1, _LINKS_A_PAGE)))


def _sessions(asked: Asked) -> Answer:
    token = _digest(asked.path)
    return links(*(f"/page/{number}?sid={token + number:x}" for number in range(_LINKS_A_PAGE)))


def _deeper(asked: Asked) -> Answer:
    path = asked.path.partition("?")[0].rstrip("/")
    return links(*(f"{path}/{word}/" for word in ("news", "about", "shop", "blog")))


def _relative(asked: Asked) -> Answer:
    return links("a/b/c", "a/b/c/", "d/../e/", "./x/")


def _queries(asked: Asked) -> Answer:
    query = asked.path.partition("?")[2]
    return links(*(f"/list?{query + '&' if query else ''}filter{number}=1" for number in range(9)))


def _subdomains(asked: Asked) -> Answer:
    token = _digest(asked.host)
    return links(*(f"{asked.base(f'h{token + number:x}.bad-subdomains.test')}/" for number in range(_LINKS_A_PAGE)))


def _soft(asked: Asked) -> Answer:
    return html(f"<title>Not found</title><p>No {asked.path}</p><a href='{asked.path.partition('?')[0]}x'>try this</a>")


TRAPS: Cases = {
    "calendar": Case("a calendar without end", _calendar),
    "sessions": Case("a new session id in every link", _sessions),
    "deeper": Case("ever deeper paths", _deeper),
    "relative": Case("relative links that grow", _relative),
    "queries": Case("filters that combine", _queries),
    "subdomains": Case("a new subdomain in every link", _subdomains),
    "soft": Case("every address exists, and links to another", _soft),
}
"""Pages without end."""


def _onward(asked: Asked) -> Answer:
    return redirect(f"/{_digest(asked.path):x}")


def _ring(asked: Asked) -> Answer:
    other = "bad-redirect-ring.test" if asked.copy else "bad-redirect-ring-1.test"
    return redirect(f"{asked.base(other)}{asked.path}")


def _chain(asked: Asked) -> Answer:
    """Redirect to the next copy of the host, for ever."""
    return redirect(f"{asked.base(f'bad-redirect-hosts-{asked.copy + 1}.test')}/")


def _steps(asked: Asked) -> Answer:
    hop = int(asked.path[1:]) if asked.path[1:].isdecimal() else 0
    return redirect(f"/{hop + 1}") if hop < _REDIRECT_STEPS else html("<p>Here at last</p>")


def _cookies(asked: Asked) -> Answer:
    return Answer(
        status=302,
        headers=(("Location", "/"), ("Set-Cookie", f"n={_digest(asked.path)}"), ("Set-Cookie", "big=" + "x" * 4000)),
    )


def _to(location: str, status: int = 302) -> Case:
    return always(f"redirects to {location[:40]!r}", Answer(status=status, headers=(("Location", location),)))


REDIRECTS: Cases = {
    "redirect-self": _to("/"),
    "redirect-ring": Case("two hosts that redirect to each other", _ring),
    "redirect-hosts": Case("redirects over hosts without end", _chain),
    "redirect-onward": Case("redirects without end", _onward),
    "redirect-steps": Case("30 redirects, and then a page", _steps),
    "redirect-cookies": Case("redirects to itself with a cookie", _cookies),
    "redirect-long": _to("/" + "x" * 40_000),
    "redirect-empty": _to(""),
    "redirect-nowhere": always("a redirect without a target", Answer(status=301)),
    "redirect-file": _to("file:///etc/passwd"),
    "redirect-script": _to("javascript:alert(1)"),
    "redirect-data": _to("data:text/html,<p>x"),
    "redirect-gopher": _to("gopher://127.0.0.1:6379/_FLUSHALL"),
    "redirect-ftp": _to("ftp://127.0.0.1/x"),
    "redirect-bad": _to("http://[::1"),
    "redirect-nul": _to("http://exa mple.test\\@/%00"),
    "redirect-port": _to("http://bad-soft.test:99999/"),
    "redirect-refused": _to("http://bad-soft.test:1/"),
    "redirect-refresh": Case(
        "a page that refreshes itself without end",
        lambda asked: html(f"<meta http-equiv=refresh content='0; url=/{_digest(asked.path):x}'>"),
    ),
}
"""Redirects without end, and redirects to nowhere."""

DELAYS: Cases = {
    "retry-after-ever": always(
        "come back in 3,000 years", plain("No.\n", status=503, headers=(("Retry-After", "99999999999"),))
    ),
    "retry-after-overflow": always(
        "come back in 10^400 seconds", plain("No.\n", status=429, headers=(("Retry-After", "9" * 400),))
    ),
    "retry-after-date": always(
        "come back at no date", plain("No.\n", status=503, headers=(("Retry-After", "Fri, 99 Feb 99999 99:99:99 GMT"),))
    ),
}
"""Ask to wait for ever."""

CASES: Cases = {**TRAPS, **REDIRECTS, **DELAYS}
