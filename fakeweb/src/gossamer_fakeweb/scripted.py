"""A site that shows nothing without its scripts: a list without end, a button for more, a form, a shadow root, a frame.

Each of its pages is the same empty document; `app.js` builds it by its path from answers in JSON. What a crawl with a
browser must find is known (`paths`, `items`). Fixed: hosts, paths, class names and steps, which tests and docs name.
"""

from urllib.parse import parse_qs, urlsplit

import msgspec

from gossamer.fakeweb.answer import Answer, html, plain

HOST = "scripted.test"
STEPS = ("scroll", "click .more", "fill #q=all", "submit #search")
"""Steps of a browser after which all pages of the site are linked."""
PLACES = ("/", "/list", "/more", "/search", "/shadow", "/frame")
"""Pages that link items, each in its way."""
FRAME = "/frames/items"
"""Document of the frame."""
_BATCH = 3
"""Items that the list and the button show at once."""

_DOCUMENT = """<!DOCTYPE html><html><head><title>Scripted</title></head>
<body><div id="app"></div><noscript>This site needs JavaScript.</noscript>
<script src="/app.js"></script></body></html>"""
_APP = """
const app = document.getElementById('app'), path = location.pathname;
const get = async url => (await fetch(url)).json();
const card = number => `<article><a href="/item/${number}">Thing ${number}</a></article>`;
const show = (place, numbers) => place.insertAdjacentHTML('beforeend', numbers.map(card).join(''));
const build = {
  '/': async () => {
    const {places, items} = await get('/api/start.json');
    app.innerHTML = '<nav>' + places.map(place => `<a href="${place}">${place}</a>`).join(' ') + '</nav>';
    show(app, items);
  },
  '/list': async () => {
    app.innerHTML = '<main></main><div id="end" style="height: 50px"></div>';
    const main = app.querySelector('main');
    let from = 0;
    const more = async () => {
      const items = await get('/api/list.json?from=' + from);
      from += items.length;
      main.style.paddingBottom = '1500px';
      show(main, items);
    };
    await more();
    const observer = new IntersectionObserver(seen => { if (seen.at(-1).isIntersecting) more(); });
    observer.observe(document.getElementById("end"));
  },
  '/more': async () => {
    app.innerHTML = '<main></main><button class="more">More</button>';
    const main = app.querySelector('main'), button = app.querySelector('button');
    let from = 0;
    const more = async () => {
      const items = await get('/api/more.json?from=' + from);
      from += items.length;
      show(main, items);
      if (!items.length) button.remove();
    };
    button.onclick = more;
    await more();
  },
  '/search': async () => {
    app.innerHTML = '<form id="search"><input id="q" name="q"><button>Search</button></form><main></main>';
    app.querySelector('form').onsubmit = async event => {
      event.preventDefault();
      show(app.querySelector('main'), await get('/api/search.json?q=' + app.querySelector('#q').value));
    };
  },
  '/shadow': async () => {
    const items = await get('/api/shadow.json');
    const root = app.attachShadow({mode: 'open'});
    root.innerHTML = '<main></main>';
    show(root.querySelector('main'), items);
  },
  '/frame': async () => { app.innerHTML = '<iframe src="/frames/items"></iframe>'; },
  '/frames/items': async () => show(app, await get('/api/frame.json')),
};
const item = async () => {
  const {name, price} = await get('/api' + path + '.json');
  app.innerHTML = `<h1>${name}</h1><p class="price">${price}</p>`;
};
(build[path] || item)();
"""


class Scripted:
    """The site. It has `pages` pages, at least `spec.LEAST_SCRIPTED`."""

    wants_bodies = False

    def __init__(self, pages: int) -> None:
        self._items = range(1, pages - len(PLACES))
        """Numbers of the items. With the places and the frame's document they are all pages."""

    @property
    def paths(self) -> set[str]:
        """Paths of all pages."""
        return {*PLACES, FRAME, *(f"/item/{number}" for number in self._items)}

    @property
    def items(self) -> dict[str, tuple[str, int]]:
        """Name and price of each item, by its path."""
        return {f"/item/{number}": (f"Thing {number}", _price(number)) for number in self._items}

    def serves(self, host: str) -> bool:
        """Return whether the host is the site's."""
        return host == HOST

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request."""
        parts = urlsplit(target)
        path = parts.path
        if path == "/robots.txt":
            return plain("")
        if path == "/app.js":
            return Answer(headers=(("Content-Type", "text/javascript"),), body=_APP.encode())
        if path in self.paths:
            return html(_DOCUMENT)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = self._data(path, query)
        if found is None:
            return html("<h1>Not found</h1>", status=404)
        return Answer(headers=(("Content-Type", "application/json"),), body=msgspec.json.encode(found))

    def _data(self, path: str, query: dict[str, str]) -> object:
        """Return an answer in JSON; None: there is none."""
        name = path.removeprefix("/api/").removesuffix(".json")
        if path == "/api/start.json":
            return {"places": PLACES[1:], "items": self._of("/")}
        if name in ("list", "more"):
            at = int(query.get("from", "0"))
            return self._of(f"/{name}")[at : at + _BATCH]
        if name == "search":
            return self._of("/search") if query.get("q") == "all" else []
        if name in ("shadow", "frame"):
            return self._of(f"/{name}")
        if f"/{name}" in self.items:
            item, price = self.items[f"/{name}"]
            return {"name": item, "price": price}
        return None

    def _of(self, place: str) -> list[int]:
        """Return the items that a page links."""
        return [number for number in self._items if number % len(PLACES) == PLACES.index(place)]

    def reset(self) -> None:
        """Do nothing: answers depend on the request only."""


def _price(number: int) -> int:
    return 100 + number * 7 % 900
