"""Decides the answer to each request: the generated site, its robots.txt and sitemaps, and mounted (handmade) pages.

If the words or the markup change, pages differ from those of an earlier release, which only recordings notice. Must
hold: links stand in the order of `Site.outlinks` and lead where it says, however they are spelled; the links in the
script and the comment of a page are no links, and no crawler may follow them.
"""

import gzip
import json
from bisect import bisect_right
from collections.abc import Sequence
from random import Random

from markupsafe import escape

from gossamer.fakeweb.answer import Answer, Ending, Mounts, encode, html, plain, redirect
from gossamer.fakeweb.site import LCG_FACTOR, LCG_STEP, MASK, Fate, Site, SitePage
from gossamer.fakeweb.spec import Robots, Sitemap

_VOCABULARY = """
air amber anchor answer autumn barley basket bell birch border bread bridge bright candle canvas carry cedar chalk
change circle clay cliff cloud coast copper corner cotton cradle current dawn delta distance drift dust early earth
echo edge ember evening fabric feather fern field finch flint flock forest frost garden gather glass grain gravel
green harbour harvest hazel hedge hill hollow honey horizon iron island ivory journey kettle ladder lake lantern
leaf letter light linen little loom maple marble meadow measure mill mirror moss mountain narrow nettle north ocean
open orchard paper path pebble pine plain quarry quiet rain reed ridge river road rope salt sand season shadow
shelter shore silver slope small snow song south spider spring stone storm straw stream summer thread thunder tide
timber valley velvet village violet wander water weather weave west wheat willow wind winter wool yarrow über façade
naïve fjörd
"""
"""Words of all pages. Some are not ASCII, so that charsets matter."""
_WORDS = _VOCABULARY.split()
_BANK_BYTES = 256 * 1024
"""Most bytes of text that are drawn for a site, which its pages share. More make pages more different, and take longer
at the start."""
_LEAST_BANK_BYTES = 16 * 1024
"""Fewest bytes of that text, for sites of small pages."""

# Beginning and end of every page. The text between them fills the page up to its size.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="{description}">
<link rel="stylesheet" href="/style.css">
<script>var note = '<a href="/in-a-script">not a link</a>';</script>
</head>
<body>
<!-- <a href="/in-a-comment">not a link</a> -->
<header>
<h1>{title}</h1>
<nav><ul>
{navigation}
</ul></nav>
</header>
<main>
"""
_LEAST_PARAGRAPH_BYTES = 16
"""Room that is left for the last paragraph. Must exceed the length of its tags."""
_TAIL = b"</main>\n<footer><p>Woven by hand.</p></footer>\n</body>\n</html>\n"


class Writer:
    """Writes the pages of one site. Their text is taken from a bank, which is drawn once, so that a page costs little
    more than its links."""

    def __init__(self, site: Site) -> None:
        self._site = site
        random = Random(site.spec.seed)  # decides only about the text
        blocks: list[bytes] = []
        size = 0
        target = min(_BANK_BYTES, max(_LEAST_BANK_BYTES, site.spec.page_bytes))
        while size < target:
            blocks.append(_block(random, len(blocks)).encode())
            size += len(blocks[-1])
        # Enough that a page can begin at any of the first blocks.
        repeats = 1 + -(-site.spec.page_bytes // size)
        self._bank = b"".join(blocks) * repeats
        starts = [0]
        for block in blocks * repeats:
            starts.append(starts[-1] + len(block))
        self._starts = starts
        """Offset of each block in the bank."""
        self._blocks = len(blocks)
        longest = max(map(len, blocks))
        # Text that may be cut anywhere, for the last paragraph.
        ascii_words = [word for word in _WORDS if word.isascii()]
        self._plain = " ".join(random.choices(ascii_words, k=longest + 64)).encode()

    def write(self, page: SitePage, *, at_home: bool = True) -> bytes:
        """Return the HTML of a page, UTF-8, exactly `page_bytes` long unless its links need more.

        `at_home` False: the page is shown at another address (after a redirect), where a relative link would lead
        elsewhere, so its links are absolute.
        """
        site = self._site
        look = site.look(page)
        anchors = self._anchors(page, look, at_home)
        title = f"Page {page.number} of {site.host(page.host)}"
        menu = site.menu_links
        half = menu + (len(anchors) - menu) // 2
        text = _HEAD.format(title=title, description="Gossamer in the morning.", navigation=_list(anchors[:menu]))
        text += f"<ul>\n{_list(anchors[menu:half])}\n</ul>\n"
        text += "".join([f"<p>Further along the thread {anchor} waits.</p>\n" for anchor in anchors[half:]])
        opening = text.encode()
        room = site.spec.page_bytes - len(opening) - len(_TAIL)
        return b"".join((opening, self._text(room, look), _TAIL))

    def _text(self, room: int, look: int) -> bytes:
        """Return whole blocks of the bank and a last paragraph that fills the room (bytes) exactly."""
        if room < _LEAST_PARAGRAPH_BYTES:
            return b" " * max(0, room)
        first = self._starts[look % self._blocks]  # the block that the text begins with
        after_last = bisect_right(self._starts, first + room - _LEAST_PARAGRAPH_BYTES) - 1
        end = self._starts[after_last]  # of the last block that fits
        rest = room - (end - first) - len(b"<p></p>\n")
        return b"%b<p>%b</p>\n" % (self._bank[first:end], self._plain[:rest])

    def _anchors(self, page: SitePage, look: int, at_home: bool) -> list[str]:
        """Return the links of a page as HTML, those of the menu first."""
        site = self._site
        anchors: list[str] = []
        menu = site.menu_links
        base = site.base(page.host)
        for position, link in enumerate(site.outlinks(page)):
            path = f"/p/{link.number}" if link.number else "/"
            if link.host != page.host:
                href = site.base(link.host) + path
            elif not at_home:
                href = base + path
            elif position < menu:
                href = path
            else:
                look = look * LCG_FACTOR + LCG_STEP & MASK
                href = _spelling(look >> 60, path, page.number == 0, base)
            anchors.append(f'<a href="{href}">Thread {link.number}</a>')
        return anchors


def _spelling(choice: int, path: str, from_root: bool, base: str) -> str:
    """Return one of the ways in which pages spell a link to `path` on their host; most are plain absolute paths.

    `choice`: 0 to 15. `from_root`: the page with the link is the host's `/`, else it is below `/p/`. `base`: URL of the
    host.
    """
    if choice < 8:
        return path
    if choice < 10:
        if from_root:
            return path.removeprefix("/") or "./"
        return path.removeprefix("/p/") if path != "/" else "../"
    if choice == 10:
        return f"..{path}"
    if choice < 13:
        return f"{path}#s{choice}"
    if choice == 13:
        return base[base.index(":") + 1 :] + path
    return base + path


def _list(anchors: list[str]) -> str:
    return "\n".join([f"<li>{anchor}</li>" for anchor in anchors])


def _block(random: Random, number: int) -> str:
    """Return a heading, a list or a paragraph of random words."""
    words = " ".join(random.choices(_WORDS, k=random.randint(25, 90))).capitalize()
    match number % 8:
        case 0:
            return f'<h2 id="s{number}">{escape(words[:40])}</h2>\n'
        case 5:
            items = "".join(f"<li>{escape(word)}</li>\n" for word in words.split()[:12])
            return f"<ul>\n{items}</ul>\n"
        case _:
            return f"<p>{escape(words)}.</p>\n"


def _written_by_a_script(document: bytes) -> bytes:
    """Return an empty page whose script makes it this document (without its doctype)."""
    text = json.dumps(document.decode().partition("\n")[2]).replace("</", "<\\/").replace("<!--", "<\\!--")
    return f"<!DOCTYPE html>\n<body><script>document.documentElement.innerHTML = {text}</script>".encode()


CACHE_BYTES = 64 * 1024 * 1024
"""Bytes of generated pages that are kept. Pages can be written again at any time."""
INDEX_STEP = 1000
"""Pages in each sitemap that an index names. Up to `spec.SITEMAP_LIMIT`."""

_NOT_FOUND = html("<html><head><title>Not found</title></head><body><h1>Not found</h1></body></html>", status=404)
_UNKNOWN_HOST = plain(
    "No such host here. The first one is site0.test: resolve it to this address, or use this server as a proxy.\n",
    status=421,
)
_BROKEN_ROBOTS = plain("Broken.\n", status=500)
_REDIRECTS = (301, 302, 303, 307, 308)
"""Statuses of redirects; each page has one of them."""
_XML = (("Content-Type", "application/xml"),)
_SITEMAP_NS = "http://www.sitemaps.org/schemas/sitemap/0.9"
_REFUSE = Answer(ending=Ending.REFUSE)


class Answers:
    """The content of a running fake web. `answer` is repeatable except where `errors_once` or a mounted sequence
    make the first request differ from the next; `reset` makes them all first again."""

    def __init__(self, site: Site, mounts: Mounts | None = None, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.site = site
        self._writer = Writer(site)
        self._cache: dict[tuple[int, str], Answer] = {}
        self.cached_bytes = 0
        """Bytes of generated pages in memory."""
        self._cache_bytes = cache_bytes
        self._healed: set[tuple[int, str]] = set()
        """Addresses (number of the host, path) that have failed once and now succeed."""
        self._mounts: dict[tuple[str, str], tuple[Answer, ...]] = {}
        self._taken: dict[tuple[str, str], int] = {}
        """Number of requests so far to each mounted address."""
        self._mounted_hosts: set[str] = set()
        for (host, path), answers in (mounts or {}).items():
            self.mount(host, path, answers)
        self._retry = (("Retry-After", str(site.spec.retry_after_seconds)),)
        self._failures = {
            Fate.NOT_FOUND: _NOT_FOUND,
            Fate.RATE_LIMITED: plain("Too many requests.\n", status=429, headers=self._retry),
            Fate.SERVER_ERROR: plain("Internal error.\n", status=500),
            Fate.UNAVAILABLE: plain("Come back later.\n", status=503, headers=self._retry),
            Fate.REFUSE: _REFUSE,
        }

    def mount(self, host: str, path: str, answers: Answer | Sequence[Answer]) -> None:
        """Serve these answers at this address from now on, instead of generated ones. Any host name is allowed.

        Raises `ValueError` for no answers, or one that cannot be sent (headers are Latin-1).
        """
        several = (answers,) if isinstance(answers, Answer) else tuple(answers)
        if not several:
            raise ValueError("a mounted address needs an answer")
        for answer in several:
            encode(answer, head_only=True, close=True)
        self._mounts[host, path] = several
        self._taken.pop((host, path), None)
        self._mounted_hosts.add(host)

    def reset(self) -> None:
        """Let pages that fail once fail again, and mounted sequences begin again."""
        self._healed.clear()
        self._taken.clear()

    def mounted_hosts(self) -> list[str]:
        """Return the host names that have only mounted pages."""
        return sorted(host for host in self._mounted_hosts if self.site.host_number(host) is None)

    def serves(self, host: str) -> bool:
        """Return whether this host name has pages, generated or mounted."""
        return host in self._mounted_hosts or self.site.host_number(host) is not None

    def answer(self, host: str, path: str) -> Answer:
        """Return the answer for a path (with its query) on a lower-case host name without port: a mounted one, a cached
        page, robots.txt or a sitemap, or what the fate of the page is (see `Fate`)."""
        if self._mounts:
            mounted = self._mounted(host, path)
            if mounted is not None:
                return mounted
        number = self.site.host_number(host)
        if number is None:
            return _NOT_FOUND if host in self._mounted_hosts else _UNKNOWN_HOST
        key = (number, path)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        place = self.site.place(number, path)
        if place is None:
            return self._side_file(number, path)
        page, hop = place
        fate = self.site.fate(page)
        if fate is Fate.PAGE:
            return self._page(key, page, at_home=True)
        if fate in (Fate.REDIRECT_SAME, Fate.REDIRECT_CROSS):
            return self._hop(key, page, hop)
        if self.site.heals(fate):
            if key in self._healed:
                return self._page(key, page, at_home=True, cached=False)
            self._healed.add(key)  # the first request fails, the next ones succeed
        failure = self._failures.get(fate)
        if failure is not None:
            return failure
        return self._page(key, page, at_home=True, cached=False, ending=Ending(fate.value))

    def _mounted(self, host: str, path: str) -> Answer | None:
        key = (host, path)
        answers = self._mounts.get(key)
        if answers is None:
            return None
        turn = self._taken.get(key, 0)
        self._taken[key] = turn + 1
        return answers[min(turn, len(answers) - 1)]

    def _page(
        self, key: tuple[int, str], page: SitePage, *, at_home: bool, cached: bool = True, ending: Ending = Ending.WHOLE
    ) -> Answer:
        """Return a generated page. `at_home`: see `Writer.write`. `cached`: keep it in the cache."""
        document = self._writer.write(page, at_home=at_home)
        answer = Answer(
            headers=(("Content-Type", "text/html; charset=utf-8"),),
            body=_written_by_a_script(document) if self.site.spec.scripts else document,
            ending=ending,
        )
        if cached:
            self._keep(key, answer)
        return answer

    def _keep(self, key: tuple[int, str], answer: Answer) -> None:
        """Cache an answer, and drop the oldest ones if the cache is full."""
        self._cache[key] = answer
        self.cached_bytes += len(answer.body)
        while self.cached_bytes > self._cache_bytes:
            oldest = next(iter(self._cache))
            self.cached_bytes -= len(self._cache.pop(oldest).body)

    def _hop(self, key: tuple[int, str], page: SitePage, hop: int) -> Answer:
        """Return the answer of a page that is reached by redirects, after `hop` of them: the next one, or the page."""
        hops = self.site.hops(page)
        if hop == len(hops):
            return self._page(key, page, at_home=False)
        host, path = hops[hop]
        status = _REDIRECTS[self.site.look(page) % len(_REDIRECTS)]
        # Within a host the location is a path, as many servers send it; a client must join it (RFC 9110, 10.2.2).
        return redirect(path if host == key[0] else self.site.base(host) + path, status=status)

    # --- robots.txt and sitemaps --------------------------------------------------------------------------------------

    def _side_file(self, host: int, path: str) -> Answer:
        """Return robots.txt or a sitemap, 404 for anything else."""
        if path == "/robots.txt":
            return self._robots(host)
        spec = self.site.spec
        pages = range(spec.pages)
        match spec.sitemap, path:
            case Sitemap.PLAIN, "/sitemap.xml":
                return self._sitemap(host, pages)
            case Sitemap.GZ, "/sitemap.xml.gz":
                content = gzip.compress(self._sitemap(host, pages).body, mtime=0)
                return Answer(headers=(("Content-Type", "application/gzip"),), body=content)
            case Sitemap.INDEX, "/sitemap.xml":
                return self._sitemap_index(host)
            case Sitemap.INDEX, _ if path.startswith("/sitemap-") and path.endswith(".xml"):
                part = path[len("/sitemap-") : -len(".xml")]
                if part.isdecimal() and len(part) < 12 and int(part) * INDEX_STEP < spec.pages:
                    start = int(part) * INDEX_STEP
                    return self._sitemap(host, pages[start : start + INDEX_STEP])
        return _NOT_FOUND

    def _robots(self, host: int) -> Answer:
        """Return the robots.txt of a host, by number."""
        spec = self.site.spec
        lines = ["User-agent: *"]
        delay = 0.0
        match self.site.robots(host):
            case Robots.NONE:
                return _NOT_FOUND
            case Robots.BROKEN:
                key = (host, "/robots.txt")
                if not spec.errors_once or key not in self._healed:
                    self._healed.add(key)
                    return _BROKEN_ROBOTS
                lines.append("Disallow:")
            case Robots.DISALLOW:
                lines += [f"Disallow: {prefix}" for prefix in spec.robots_disallow]
            case Robots.CRAWL_DELAY:
                lines += ["Disallow:", f"Crawl-delay: {spec.crawl_delay_seconds:g}"]
            case Robots.SLOW:
                lines.append("Disallow:")
                delay = spec.robots_slow_ms
            case Robots.ALLOW:
                lines.append("Disallow:")
        if spec.sitemap is not Sitemap.NONE:
            name = "/sitemap.xml.gz" if spec.sitemap is Sitemap.GZ else "/sitemap.xml"
            lines += ["", f"Sitemap: {self.site.base(host)}{name}"]
        text = "\n".join(lines) + "\n"
        return Answer(headers=(("Content-Type", "text/plain"),), body=text.encode(), delay_ms=delay)

    def _sitemap(self, host: int, pages: range) -> Answer:
        rows = "".join([f"<url><loc>{self.site.url(host, page)}</loc></url>\n" for page in pages])
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{_SITEMAP_NS}">\n{rows}</urlset>\n'
        return Answer(headers=_XML, body=text.encode())

    def _sitemap_index(self, host: int) -> Answer:
        parts = range(-(-self.site.spec.pages // INDEX_STEP))
        base = self.site.base(host)
        rows = "".join([f"<sitemap><loc>{base}/sitemap-{part}.xml</loc></sitemap>\n" for part in parts])
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<sitemapindex xmlns="{_SITEMAP_NS}">\n{rows}</sitemapindex>\n'
        return Answer(headers=_XML, body=text.encode())
