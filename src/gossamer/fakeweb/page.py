"""Writes a fake page: HTML such as a real site sends, of a given size, around given links."""

from bisect import bisect_right
from html import escape
from random import Random

from gossamer.fakeweb.site import Page, Site

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
_WORDS = _VOCABULARY.split()
_BANK_BYTES = 256 * 1024

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
_TAIL = b"</main>\n<footer><p>Woven by hand.</p></footer>\n</body>\n</html>\n"


class Writer:
    """Writes the pages of one site. Its text is drawn once, so that a page costs little more than its links."""

    def __init__(self, site: Site) -> None:
        self._site = site
        random = Random(site.spec.seed)  # the seed only flavours the text
        blocks: list[bytes] = []
        size = 0
        target = min(_BANK_BYTES, max(16 * 1024, site.spec.page_bytes))
        while size < target:
            blocks.append(_block(random, len(blocks)).encode())
            size += len(blocks[-1])
        repeats = 1 + -(-site.spec.page_bytes // size)
        self._bank = b"".join(blocks) * repeats
        starts = [0]
        for block in blocks * repeats:
            starts.append(starts[-1] + len(block))
        self._starts = starts
        self._blocks = len(blocks)
        longest = max(map(len, blocks))
        ascii_words = [word for word in _WORDS if word.isascii()]
        self._plain = " ".join(random.choices(ascii_words, k=longest + 64)).encode()

    def write(self, page: Page, *, at_home: bool = True) -> bytes:
        """The HTML of a page, UTF-8, exactly `page_bytes` long unless its links need more.

        `at_home` False: it is shown at another address (after a redirect), where a relative link would lead astray.
        """
        site = self._site
        look = site.look(page)
        anchors = self._anchors(page, look, at_home)
        title = f"Page {page.number} of {site.host(page.host)}"
        menu = min(5, max(0, site.spec.out_degree - 2), site.spec.pages)
        half = menu + (len(anchors) - menu) // 2
        text = _HEAD.format(title=title, description="Gossamer in the morning.", navigation=_list(anchors[:menu]))
        text += f"<ul>\n{_list(anchors[menu:half])}\n</ul>\n"
        text += "".join([f"<p>Further along the thread {anchor} waits.</p>\n" for anchor in anchors[half:]])
        opening = text.encode()
        room = site.spec.page_bytes - len(opening) - len(_TAIL)
        return b"".join((opening, self._text(room, look), _TAIL))

    def _text(self, room: int, look: int) -> bytes:
        """Whole blocks of the bank and a last paragraph that fills the room exactly."""
        if room < 16:
            return b" " * max(0, room)
        first = self._starts[look % self._blocks]
        last = self._starts[bisect_right(self._starts, first + room - 16) - 1]
        rest = room - (last - first) - 8
        return b"%b<p>%b</p>\n" % (self._bank[first:last], self._plain[:rest])

    def _anchors(self, page: Page, look: int, at_home: bool) -> list[str]:
        site = self._site
        anchors: list[str] = []
        menu = min(5, max(0, site.spec.out_degree - 2), site.spec.pages)
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
                look = look * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
                href = _spelling(look >> 60, path, page.number == 0, base)
            anchors.append(f'<a href="{href}">Thread {link.number}</a>')
        return anchors


def _spelling(choice: int, path: str, from_root: bool, base: str) -> str:
    """One of the ways in which pages spell a link to `path`; most are plain absolute paths."""
    if choice < 8:
        return path
    if choice < 10:
        # Relative to `/` or to `/p/`; the root has no relative name but these.
        if from_root:
            return path[1:] or "./"
        return path[3:] or "../"
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
    words = " ".join(random.choices(_WORDS, k=random.randint(25, 90))).capitalize()
    match number % 8:
        case 0:
            return f'<h2 id="s{number}">{escape(words[:40])}</h2>\n'
        case 5:
            items = "".join(f"<li>{escape(word)}</li>\n" for word in words.split()[:12])
            return f"<ul>\n{items}</ul>\n"
        case _:
            return f"<p>{escape(words)}.</p>\n"
