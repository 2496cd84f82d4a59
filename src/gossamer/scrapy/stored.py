"""Scrapy requests as bytes and back, exactly; never pickle. What cannot be stored exactly is refused, not changed.

A stored request is a MessagePack map of what `Request.to_dict` gives, without what is as in a plain request. Types that
MessagePack has no form for (tuples, sets, dates, decimals, Scrapy's items, dataclasses) travel as extensions.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec
from itemadapter import ItemAdapter
from scrapy import Item, Request, Spider
from scrapy.http.request import NO_CALLBACK

from gossamer.errors import GossamerError
from gossamer.model.request import SCRAPY_DEFAULTS, Payload
from gossamer.model.values import ITEM, decode, encode, extended, plain


class Unstorable(GossamerError):
    """This request cannot be stored."""


class Unreadable(GossamerError):
    """This request cannot be run here."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """Stable word for counters."""


_LXML = "lxml.etree"
"""Text that it found, such as the `link_text` that every rule of a CrawlSpider puts into `meta`, is of a class of its
own, which says what it stood in. It does not know that any more once it left its page; so it travels as the text."""
_NO_CALLBACK = 0
"""In the place of a callback's name: the request is not for any."""


def store(request: Request, spider: Spider, *, url: str) -> Payload:
    """The request as what travels with its entry. `url`: the entry's, left out where the request's is the same.

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
            pass  # the payload's own
        elif name == "method" or (name in SCRAPY_DEFAULTS and value == SCRAPY_DEFAULTS[name]):
            pass
        else:
            fields[name] = _plain(value, name)
    kind = type(request)
    if kind is not Request:
        fields["_class"] = _path(kind)
    body = request.body if request.method != "GET" else b""
    return Payload(method=request.method, body=body, scrapy=encode(fields))


def restore(payload: Payload, spider: Spider, *, url: str, priority: int) -> Request:
    """The request again; `url` and `priority` are the entry's, where it does not say otherwise.

    Raises Unreadable: its callback or its class is no longer in the code here, or it was written by something else.
    """
    if payload.scrapy is None:
        return Request(url, method=payload.method, body=payload.body, headers=payload.headers, priority=priority)
    try:
        fields = decode(payload.scrapy, item=_item)
    except ValueError as fault:
        raise Unreadable("unreadable", str(fault)) from None
    fields.setdefault("url", url)
    fields.setdefault("priority", priority)
    fields["method"] = payload.method
    if payload.body:
        fields["body"] = payload.body
    for name in ("callback", "errback"):
        if name in fields:
            fields[name] = NO_CALLBACK if fields[name] == _NO_CALLBACK else _method(spider, fields[name], name)
    kind = _class(fields.pop("_class"), Request) if "_class" in fields else Request
    try:
        return kind(**fields)
    except (TypeError, ValueError) as fault:
        raise Unreadable("unreadable", str(fault)) from None


# --- callbacks --------------------------------------------------------------------------------------------------------


def _method_name(spider: Spider, function: Any, which: str) -> str:
    # By name, so that it is found again whatever the process; and only where that name means this very function.
    if getattr(function, "__self__", None) is spider:
        kind: Any = type(spider)
        name = _name_in(kind, function.__func__)
        if name and getattr(getattr(spider, name, None), "__func__", None) is function.__func__:
            return name
    called = getattr(function, "__qualname__", None) or repr(function)
    raise Unstorable(f"its {which} {called} is no method of the spider; make it one")


@lru_cache(maxsize=1000)
def _name_in(kind: Any, function: Any) -> str:
    """What the class calls it, which may be another name than its own: of `__private` methods and decorated ones."""
    own = str(getattr(function, "__name__", ""))
    names = [own, *(name for one in kind.__mro__ for name, value in vars(one).items() if value is function)]
    return next((name for name in names if getattr(kind, name, None) is function), "")


def _method(spider: Spider, name: str, which: str) -> Callable[..., Any]:
    method = getattr(spider, name, None)
    if not callable(method):
        raise Unreadable("no_callback", f"the spider {spider.name} has no method {name} for its {which}")
    return method  # type: ignore[no-any-return]


def _class(path: str, base: type) -> Any:
    """Return the class of this path, a subclass of `base`. Raises Unreadable."""
    found = _imported(path)
    if found is None:
        raise Unreadable("no_class", f"there is no {path} here; import it where the spider is defined")
    if not issubclass(found, base):
        raise Unreadable("no_class", f"{path} is no {base.__name__}")
    return found


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _imported(path: str) -> type | None:
    """Return the class of this path if this process has imported its module. Stored data never loads code."""
    parts = path.split(".")
    found: Any = None
    for end in range(len(parts) - 1, 0, -1):
        found = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for name in parts[end:]:
                found = getattr(found, name, None)
            break
    return found if isinstance(found, type) and _path(found) == path else None


# --- values -----------------------------------------------------------------------------------------------------------


def _plain(value: Any, where: str) -> Any:
    """The same in types that MessagePack keeps apart."""
    try:
        return plain(value, where, other=_known_form)
    except ValueError as why:
        raise Unstorable(str(why)) from None


def _known_form(value: Any, where: str, depth: int) -> Any:
    kind = type(value)
    if isinstance(value, str) and kind.__module__ == _LXML:
        return str(value)
    if isinstance(value, Item):
        found = dict(ItemAdapter(value).items())
    elif dataclasses.is_dataclass(kind):
        found = _fields_of(value, where)
    else:
        return None
    fields = {name: plain(one, f"{where}.{name}", depth + 1, other=_known_form) for name, one in found.items()}
    return extended(ITEM, [_path(kind), fields])


def _fields_of(value: Any, where: str) -> dict[str, Any]:
    """The fields of a dataclass's instance. Raises ValueError for one that could not be made again from them."""
    kind = type(value)
    if _imported(_path(kind)) is not kind:
        raise ValueError(f"{where} holds a {_path(kind)}, which is not found by that name; define it in a module")
    names = [one.name for one in dataclasses.fields(value)]
    if more := sorted(set(getattr(value, "__dict__", ())) - set(names)):
        raise ValueError(f"{where} holds a {_path(kind)} with {more[0]}, which is none of its fields")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _item(value: Any) -> Any:
    path, fields = value
    kind = _class(path, object)
    if issubclass(kind, Item):
        return kind(fields)
    if not dataclasses.is_dataclass(kind):
        raise Unreadable("no_class", f"{path} is neither an item nor a dataclass")
    known = {one.name: one for one in dataclasses.fields(kind)}
    if unknown := set(fields) - set(known):
        raise Unreadable("unreadable", f"{path} has no field {min(unknown)}")
    # As it was: neither __init__ nor __post_init__ runs again, and frozen ones are filled, too.
    made: Any = object.__new__(cast("type", kind))
    for name, one in known.items():
        if name not in fields and one.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, name, one.default_factory())
    for name, one in fields.items():
        object.__setattr__(made, name, one)
    return made


def attrs_of(meta: Mapping[str, Any]) -> dict[str, object] | None:
    """Of a request for another spider: what of its meta plain data can say. Raises Unstorable for what it cannot."""
    attrs = meta.get("attrs")
    if not isinstance(attrs, Mapping):
        return None
    try:
        msgspec.msgpack.encode(attrs)
    except (TypeError, ValueError, OverflowError) as fault:
        raise Unstorable(f"meta['attrs'] for another spider has to be plain data: {fault}") from None
    return dict(attrs)
