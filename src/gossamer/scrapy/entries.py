"""Encodes Scrapy requests as entries of the frontier (the queue that all processes share), and decodes them.

An entry has the canonical URL, its domain, a fingerprint (equal fingerprints are one request) and a payload: all that
the URL does not tell, such as the method, the headers and the callback's name.

Fixed: fingerprints and payloads are stored, so whatever computes or spells them must not change, or requests that were
seen are fetched again and waiting ones cannot be read; and stored data never loads code (`_imported`).
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
from scrapy import Item, Request, Spider
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.request import RequestFingerprinter as ScrapyFingerprinter

from gossamer.errors import BadUrl, GossamerError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.request import (
    MAX_DEPTH,
    MAX_PRIORITY,
    SCRAPY_DEFAULTS,
    Batch,
    Payload,
    pack,
    payload_size_error,
    spider_name_error,
)
from gossamer.model.values import ITEM, decode, encode, extended, to_packable
from gossamer.policy.scrapy_urls import clean_form, digest
from gossamer.policy.urls import canonical, fingerprint, host, registered_domain, spider_seed


class RequestFingerprinter:
    """Drop-in replacement of Scrapy's own fingerprinter. It must return the same bytes: projects switch to it, and
    back, at any time.

    It is faster because most URLs need no parser to be brought into w3lib's canonical form. It leaves all other URLs,
    and requests with `verbatim_url` in their meta, to Scrapy's fingerprinter.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RequestFingerprinter":
        return cls(crawler)

    def __init__(self, crawler: Crawler | None = None) -> None:
        self._fallback = ScrapyFingerprinter(crawler)

    def fingerprint(self, request: Request) -> bytes:
        """Return 20 bytes."""
        form = clean_form(request.url.partition("#")[0])
        if form is None or (request._meta and request._meta.get("verbatim_url")):
            return self._fallback.fingerprint(request)
        return digest(form, method=request.method, body=request.body)


def faster_fingerprinter(fingerprinter: Any) -> Any:
    """Return RequestFingerprinter for Scrapy's default fingerprinter, and any other fingerprinter as it is."""
    return RequestFingerprinter() if type(fingerprinter) is ScrapyFingerprinter else fingerprinter


SPIDER_KEY = "spiderid"
"""Key of a request's meta with the name of the spider that handles the request, where that is not the spider that made
it. Scrapy Cluster's name, which projects use: it must not change."""


RENDER_KEY = "render"
"""Key of a request's meta that says whether a browser renders the page, and how (`render_options.py`). Stored requests
have it: it must not change."""


class RequestKey(NamedTuple):
    """Identity of a request in the frontier. Equal keys are one request."""

    spider: str
    url: str
    """Canonical."""
    fingerprint: int


@dataclass(frozen=True, slots=True)
class FrontierEntry:
    """A request in the form that the frontier takes."""

    spider: str
    domain: str
    priority: int
    depth: int
    url: str
    fingerprint: int
    payload: bytes | None
    """None: a request with nothing but its URL."""
    render: bool = False
    """True: only processes with a browser take it."""


BatchKey = tuple[str, str, int, int, bool, bool]
"""Spider, domain, priority, depth, unfiltered, to be rendered: what the requests of one Batch have in common."""


def add_to_batch(batches: dict[BatchKey, Batch], entry: FrontierEntry, *, unfiltered: bool) -> None:
    """Append the entry to the batch of its spider, domain, priority, depth, filtering and lane.

    `unfiltered`: the frontier takes the request even if it has seen it."""
    key = (entry.spider, entry.domain, entry.priority, entry.depth, unfiltered, entry.render)
    batch = batches.get(key)
    if batch is None:
        batch = batches[key] = Batch(
            entry.spider,
            entry.domain,
            entry.priority,
            entry.depth,
            payloads=[],
            unfiltered=unfiltered,
            render=entry.render,
        )
    batch.urls.append(entry.url)
    batch.fingerprints.append(entry.fingerprint)
    assert isinstance(batch.payloads, list)
    batch.payloads.append(entry.payload)


_MAX_KEYS = 16_384
"""Keys that an encoder remembers; at this number all are forgotten. Each takes some 450 bytes; one that is not
remembered is computed again."""


class EntryEncoder:
    """Encodes the requests of one spider's process."""

    def __init__(self, spider: Spider, *, frontier: ValkeyFrontier, fingerprinter: Any) -> None:
        """`fingerprinter` is the crawler's."""
        self._spider = spider
        self._frontier = frontier
        self._fingerprinter = faster_fingerprinter(fingerprinter)
        self._has_default_fingerprints = type(self._fingerprinter) is RequestFingerprinter
        self.is_rendered: Callable[[Request], bool] = lambda request: False
        """Returns whether only a process with a browser takes a request."""
        self.url_keys: dict[str, RequestKey] = {}
        """Keys of GET requests that are nothing but a URL, by URL. Most links of a site occur on many of its pages."""

    def key(self, request: Request) -> RequestKey:
        """Return the request's key, which costs much less than its entry.

        Raises Unstorable for a URL that only this process can download, and for an invalid spider name."""
        meta = request._meta
        is_url = self._has_default_fingerprints and request.method == "GET" and not request.body
        if not is_url or (meta and (SPIDER_KEY in meta or "verbatim_url" in meta)):
            return self._compute_key(request)
        key = self.url_keys.get(request.url)
        if key is None:
            if len(self.url_keys) >= _MAX_KEYS:
                self.url_keys.clear()
            key = self.url_keys[request.url] = self._compute_key(request)
        return key

    def _compute_key(self, request: Request) -> RequestKey:
        url = _canonical(request)
        target = request.meta.get(SPIDER_KEY) if request._meta else None
        if target is None or target == self._spider.name:
            return RequestKey(self._spider.name, url, self._own_fingerprint(request, url))
        spider = str(target)
        if fault := spider_name_error(spider):
            raise Unstorable(fault)
        return RequestKey(spider, url, self._common_fingerprint(spider, request, url))

    def entry(self, request: Request, key: RequestKey) -> FrontierEntry:
        """Return the request's entry. `key`: what `key` returns for it. Raises Unstorable, whose detail says why."""
        is_own = key.spider == self._spider.name
        payload = pack(serialize(request, self._spider, url=key.url) if is_own else neutral_payload(request))
        if fault := payload_size_error(payload):
            raise Unstorable(fault)
        return FrontierEntry(
            key.spider,
            registered_domain(host(key.url)),
            max(-MAX_PRIORITY, min(request.priority, MAX_PRIORITY)),
            _depth(request),
            key.url,
            key.fingerprint,
            payload,
            is_own and self.is_rendered(request),
        )

    def payload(self, request: Request, *, url: str) -> bytes:
        """Return the payload of the request in the entry of another URL, `url`, as after a redirect.

        Raises Unstorable."""
        return pack(serialize(request, self._spider, url=url)) or b""

    def _own_fingerprint(self, request: Request, url: str) -> int:
        """Return the fingerprint of the crawler's fingerprinter for this spider's request, keyed with the frontier's
        secret, so that no site can make URLs whose fingerprints are equal."""
        seed = spider_seed(self._frontier.secret, self._spider.name)
        return fingerprint(self._fingerprinter.fingerprint(request), seed=seed)

    def _common_fingerprint(self, spider: str, request: Request, url: str) -> int:
        """Return the fingerprint of a request for another spider, which all processes compute in the same way."""
        return self._frontier.spiders.fingerprint(spider, url, method=request.method, body=request.body)


def neutral_payload(request: Request) -> Payload:
    """Return a payload for another spider, run by Scrapy or by Gossamer's worker: method, body, headers and `attrs`
    (the user's own data, which goes unchanged into every record).

    Raises Unstorable."""
    headers = {
        name.decode("latin-1"): b",".join(values).decode("latin-1")
        for name, values in request.headers.items()
        if values
    }
    return Payload(method=request.method, body=request.body, headers=headers or None, attrs=attrs_of(request.meta))


def _canonical(request: Request) -> str:
    try:
        return canonical(request.url)
    except BadUrl as fault:
        raise Unstorable(f"{fault}. Other schemes are downloaded in this process only") from None


def _depth(request: Request) -> int:
    """Return the depth that Scrapy's DepthMiddleware has set; 0 for none, or for one that cannot be stored."""
    depth = request.meta.get("depth", 0) if request._meta else 0
    return depth if type(depth) is int and 0 <= depth <= MAX_DEPTH else 0


# --- requests as bytes ------------------------------------------------------------------------------------------------


class Unstorable(GossamerError):
    """The request cannot be stored."""

    only_detail = True


class Unreadable(GossamerError):
    """The stored request cannot be run in this process."""

    only_detail = True

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """`unreadable`, `no_callback` or `no_class`. Users read these words in counters and records: fixed."""


_LXML = "lxml.etree"
"""Module of lxml's subclass of str, such as the `link_text` that the rules of a CrawlSpider put into `meta`. Such a
string refers to its whole document, so only its text is stored. The name is lxml's: change it only if lxml does."""
_NO_CALLBACK = 0
"""Stored instead of a callback's name for NO_CALLBACK. Part of the stored format: it must not change."""


def serialize(request: Request, spider: Spider, *, url: str) -> Payload:
    """Return the request as the payload of an entry, never as a pickle. Refuses values that cannot be restored exactly.

    `Payload.scrapy` is a MessagePack map of the fields that `Request.to_dict` returns, without those that have the
    values of SCRAPY_DEFAULTS; `_class` is the dotted path of a subclass of Request. Types without a MessagePack form
    (tuples, sets, dates, decimals, Scrapy's items, dataclasses) are extensions. `url` is the entry's URL, left out
    where the request's URL is the same. All this is the stored format: the field names, `_class` and SCRAPY_DEFAULTS
    must not change, because waiting requests are stored with them.

    Raises Unstorable, whose detail says what to change.
    """
    fields: dict[str, Any] = {}
    for name in request.attributes:
        value = getattr(request, name)
        if name == "url":
            if value != url:
                fields[name] = value
        elif name in ("callback", "errback"):
            if value is not None:
                fields[name] = _NO_CALLBACK if value is NO_CALLBACK else _method_name(spider, value, name)
        elif name == "headers":
            if value:
                fields[name] = {key: list(values) for key, values in value.items()}
        elif name == "body" and value and request.method != "GET":
            pass  # Payload.body holds it. A GET request, which seldom has a body, keeps it among these fields.
        elif name == "method" or (name in SCRAPY_DEFAULTS and value == SCRAPY_DEFAULTS[name]):
            pass
        else:
            fields[name] = _plain(value, name)
    kind = type(request)
    if kind is not Request:
        fields["_class"] = _path(kind)
    body = request.body if request.method != "GET" else b""
    return Payload(method=request.method, body=body, scrapy=encode(fields))


def callback_identity(request: Request) -> bytes:
    """Return the name and the arguments of the callback as bytes, which differ where the result of the callback for the
    same page may differ. Raises Unstorable."""
    name = getattr(request.callback, "__name__", "")
    # The rules of a CrawlSpider have one callback in common, which finds the rule by its number.
    rule = request.meta.get("rule")
    return encode({"callback": name, "rule": str(rule), "cb_kwargs": _plain(request.cb_kwargs, "cb_kwargs")})


def deserialize(payload: Payload, spider: Spider, *, url: str, priority: int) -> Request:
    """Return the request of a payload. `url` and `priority` are the entry's; the payload's own values override them.

    Raises Unreadable where the callback or a class is not in this process's code, or the payload has another format.
    """
    try:
        return _request_of(payload, spider, url=url, priority=priority)
    except Unreadable:
        raise
    except Exception as fault:  # a class of the project may raise any, and other programs may push any value
        raise Unreadable("unreadable", f"{type(fault).__name__}: {fault}") from None


def _request_of(payload: Payload, spider: Spider, *, url: str, priority: int) -> Request:
    """Return the request of a payload. Raises Unreadable, or any other exception, for values that make none."""
    if payload.scrapy is None:
        return Request(url, method=payload.method, body=payload.body, headers=payload.headers, priority=priority)
    fields = decode(payload.scrapy, item=_item)
    fields.setdefault("url", url)
    fields.setdefault("priority", priority)
    fields["method"] = payload.method
    if payload.body:
        fields["body"] = payload.body
    for name in ("callback", "errback"):
        if name in fields:
            fields[name] = NO_CALLBACK if fields[name] == _NO_CALLBACK else _method(spider, fields[name], name)
    kind = _class(fields.pop("_class"), Request) if "_class" in fields else Request
    return kind(**fields)


def _method_name(spider: Spider, function: Any, which: str) -> str:
    """Return the name of a callback or errback (`which`). Raises Unstorable unless the name leads to this function:
    other processes find the method by the name."""
    if getattr(function, "__self__", None) is spider:
        kind: Any = type(spider)
        name = _name_in(kind, function.__func__)
        if name and getattr(getattr(spider, name, None), "__func__", None) is function.__func__:
            return name
    called = getattr(function, "__qualname__", None) or repr(function)
    raise Unstorable(f"its {which} {called} is not a method of the spider; make it one")


@lru_cache(maxsize=1000)  # one for each callback
def _name_in(kind: Any, function: Any) -> str:
    """Return the class's name for the function; empty: none.

    It differs from the function's own name for `__private` and decorated methods.
    """
    names = [str(getattr(function, "__name__", ""))]
    for one in kind.__mro__:  # the class and its base classes
        names += [name for name, value in vars(one).items() if value is function]
    return next((name for name in names if getattr(kind, name, None) is function), "")


def _method(spider: Spider, name: str, which: str) -> Callable[..., Any]:
    """Return the spider's callback or errback (`which`) of this name. Raises Unreadable."""
    method = getattr(spider, name, None)
    if not callable(method):
        raise Unreadable("no_callback", f"the spider {spider.name} has no method {name} for its {which}")
    return method  # type: ignore[no-any-return]


def _class(path: str, base: type) -> Any:
    """Return the class at a dotted path. Raises Unreadable unless it is imported and a subclass of `base`."""
    found = _imported(path)
    if found is None:
        raise Unreadable("no_class", f"this process has not imported {path}; import it where the spider is defined")
    if not issubclass(found, base):
        raise Unreadable("no_class", f"{path} is not a {base.__name__}")
    return found


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _imported(path: str) -> type | None:
    """Return the class at a dotted path. None: this process has not imported it.

    It must never import: a program that can write into the frontier's server could then run any module."""
    parts = path.split(".")
    found: Any = None
    # The longest beginning that names a module; the rest is a class, possibly inside of others.
    for end in range(len(parts) - 1, 0, -1):
        found = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for name in parts[end:]:
                found = getattr(found, name, None)
            break
    return found if isinstance(found, type) and _path(found) == path else None


def _plain(value: Any, where: str) -> Any:
    """Return the value in types that MessagePack can tell apart. Raises Unstorable. `where`: for the message."""
    try:
        return to_packable(value, where, other=_item_or_text)
    except ValueError as why:
        raise Unstorable(str(why)) from None


def _item_or_text(value: Any, where: str, depth: int) -> Any:
    """Convert the types that `to_packable` does not know; None for any other type. `_item` is its counterpart, and
    reads the form that is written here: `ITEM`, the class's path, the fields. That form is stored: fixed."""
    kind = type(value)
    if isinstance(value, str) and kind.__module__ == _LXML:
        return str(value)
    if isinstance(value, Item):
        found = dict(value.items())
    elif dataclasses.is_dataclass(kind):
        found = _fields_of(value, where)
    else:
        return None
    fields = {name: to_packable(one, f"{where}.{name}", depth + 1, other=_item_or_text) for name, one in found.items()}
    return extended(ITEM, [_path(kind), fields])


def _fields_of(value: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass's instance. Raises ValueError unless the fields suffice to restore it."""
    kind = type(value)
    if _imported(_path(kind)) is not kind:
        raise ValueError(f"{where} holds a {_path(kind)}, which is not found by that name; define it in a module")
    names = [one.name for one in dataclasses.fields(value)]
    if more := sorted(set(getattr(value, "__dict__", ())) - set(names)):
        raise ValueError(f"{where} holds a {_path(kind)} with {more[0]}, which is not one of its fields")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _item(value: Any) -> Any:
    """Return the item or dataclass instance that `_item_or_text` has written. Raises Unreadable."""
    path, fields = value
    kind = _class(path, object)
    if issubclass(kind, Item):
        return kind(fields)
    if not dataclasses.is_dataclass(kind):
        raise Unreadable("no_class", f"{path} is neither an item nor a dataclass")
    known = {one.name: one for one in dataclasses.fields(kind)}
    if unknown := set(fields) - set(known):
        raise Unreadable("unreadable", f"{path} has no field {min(unknown)}")
    # Restore the fields without running __init__ and __post_init__ again. This works for frozen dataclasses, too.
    made: Any = object.__new__(cast("type", kind))
    for name, one in known.items():
        if name not in fields and one.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, name, one.default_factory())
    for name, one in fields.items():
        object.__setattr__(made, name, one)
    return made


def attrs_of(meta: Mapping[str, Any]) -> dict[str, object] | None:
    """Return the `attrs` of a request for another spider; None: it has none. Raises Unstorable unless plain data."""
    attrs = meta.get("attrs")
    if not isinstance(attrs, Mapping):
        return None
    try:
        msgspec.msgpack.encode(attrs)
    except (TypeError, ValueError, OverflowError) as fault:
        raise Unstorable(f"meta['attrs'] for another spider must be plain data: {fault}") from None
    return dict(attrs)
