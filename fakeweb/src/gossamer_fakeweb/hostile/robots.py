"""Hosts whose robots.txt is the attack; the page behind it is harmless.

Cases may be added freely; their names are fixed: tests list whether a crawler may fetch the page behind each (RFC
9309). Below 500 KiB, the least that a crawler must read, a file would be no attack.
"""

from functools import cache

from gossamer.fakeweb.answer import Answer, Reset, Send, Silence, Step, html, plain, redirect
from gossamer_fakeweb.hostile.addresses import FORMS, form_url
from gossamer_fakeweb.hostile.bombs import repeated
from gossamer_fakeweb.hostile.case import Answering, Asked, Case, Cases

_TEXT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
_PAGE = html("<html><p>Behind the robots.txt</p></html>")


def _robots(about: str, robots: Answering) -> Case:
    """Return a case with this robots.txt and the harmless page."""
    return Case(about, lambda asked: _PAGE, robots)


def _fixed(about: str, answer: Answer) -> Case:
    """Return a case whose robots.txt is always this answer."""
    return _robots(about, lambda asked: answer)


def _scripted(about: str, *script: Step, status: int = 200) -> Case:
    return _fixed(about, Answer(status=status, script=script))


def _lines(about: str, piece: bytes, times: int) -> Case:
    """Return a case whose robots.txt repeats the piece, with the number of the repetition for `%d`."""

    @cache
    def text() -> bytes:
        return b"User-agent: *\n" + b"".join(piece % number for number in range(times))

    return _robots(about, lambda asked: Answer(headers=(("Content-Type", "text/plain"),), body=text()))


@cache
def _bomb() -> Answer:
    return Answer(headers=(("Content-Encoding", "gzip"),), body=repeated(1024, 31, b"\n"))


def _location(asked: Asked) -> str:
    url = form_url(FORMS[asked.copy % len(FORMS)], asked.private_port, "/robots.txt")
    return url.encode().decode("latin-1")  # as servers send it: the bytes of UTF-8


def _leading(asked: Asked) -> Answer:
    return Answer(status=302, headers=(("Location", _location(asked)),))


@cache
def _agents() -> Answer:
    return plain("".join(f"User-agent: bot{number}\n" for number in range(20_000)) + "Disallow: /\n" * 5000)


CASES: Cases = {
    "robots-huge": _lines("a robots.txt of 10 MB", b"Disallow: /private/number/%d\n", 350_000),
    "robots-endless": _scripted(
        "a robots.txt without end", Send(_TEXT + b"\r\n"), Send(b"Disallow: /p\n" * 999, times=0)
    ),
    "robots-silent": _scripted("no robots.txt, and no answer", Silence(), status=0),
    "robots-half": _scripted(
        "half a robots.txt, then silence", Send(_TEXT + b"Content-Length: 99\r\n\r\nUser-a"), Silence()
    ),
    "robots-slow": _scripted("a byte a second", Send(_TEXT + b"\r\n"), Send(b"#", times=0, pause_seconds=1.0)),
    "robots-reset": _scripted("a reset", Reset(), status=0),
    "robots-cut": _scripted("cut off", Send(_TEXT + b"Content-Length: 99\r\n\r\nUser-agent: *\nDisallow: /")),
    "robots-broken": _fixed("status 500", plain("Broken.\n", status=500)),
    "robots-away": _fixed(
        "status 503, come back in 3,000 years", plain("No.\n", status=503, headers=(("Retry-After", "99999999999"),))
    ),
    "robots-busy": _fixed("status 429", plain("Too many.\n", status=429)),
    "robots-forbidden": _fixed("status 403", plain("No.\n", status=403)),
    "robots-ring": _robots("redirects to itself", lambda asked: redirect("/robots.txt")),
    "robots-chain": _robots(
        "redirects over hosts without end",
        lambda asked: redirect(f"{asked.base(f'bad-robots-chain-{asked.copy + 1}.test')}/robots.txt"),
    ),
    "robots-nowhere": _robots("redirects to no URL", lambda asked: redirect("http://[")),
    "robots-file": _robots("redirects to a file", lambda asked: redirect("file:///etc/passwd")),
    "robots-bomb": _robots("1 GB in gzip", lambda asked: _bomb()),
    "robots-noise": _fixed("all bytes there are", Answer(body=bytes(range(256)) * 1000)),
    "robots-nul": _fixed("NUL bytes", Answer(body=b"User-agent: *\0\nDisallow: /\0\n" * 9999)),
    "robots-page": _fixed("a page", html("<html><p>Welcome</p></html>" * 999)),
    "robots-wildcards": _lines("20,000 rules of wildcards", b"Disallow: /*a*a*a*a*a*b%d\n", 18_000),
    "robots-wildcard": _fixed(
        "one rule of 200,000 wildcards", plain("User-agent: *\nDisallow: /" + "*a" * 200_000 + "\n")
    ),
    "robots-agents": _robots("20,000 agents that share 5,000 rules", lambda asked: _agents()),
    "robots-delay": _fixed("a delay of 10^300 s", plain("User-agent: *\nCrawl-delay: 1e300\nDisallow:\n")),
    "robots-delay-nan": _fixed(
        "a delay that is no number", plain("User-agent: *\nCrawl-delay: nan\nCrawl-delay: -1\nDisallow:\n")
    ),
    "robots-sitemaps": _lines("20,000 sitemaps", b"Sitemap: http://127.0.0.1/%d.xml\n", 20_000),
    "robots-to": _robots("redirects to a private address, by its number", _leading),
}
