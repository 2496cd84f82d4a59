"""Scrapy requests as bytes and back, exactly; never pickle. What cannot be stored exactly is refused, not changed.

A stored request is a MessagePack map of what `Request.to_dict` gives, without what is as in a plain request. Types that
MessagePack has no form for (tuples, sets, dates, decimals, Scrapy's items) travel as extensions.
"""

import datetime
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from importlib import import_module
from typing import Any

import msgspec
from itemadapter import ItemAdapter
from scrapy import Item, Request, Spider
from scrapy.http.request import NO_CALLBACK

from gossamer.errors import GossamerError
from gossamer.model.payload import Payload


class Unstorable(GossamerError):
    """This request cannot be stored."""


class Unreadable(GossamerError):
    """This request cannot be run here."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """Stable word for counters."""


_DEFAULTS: dict[str, Any] = {
    "method": "GET",
    "headers": {},
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
    "callback": None,
    "errback": None,
}
_ATOMS = frozenset({type(None), bool, float, str, bytes})
_DEEPEST = 100
_NO_CALLBACK = 0
"""In the place of a callback's name: the request is not for any."""

_TUPLE, _SET, _FROZENSET, _DATETIME, _DATE, _DECIMAL, _ITEM, _BIG = range(8)
_FORMS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, list),
    frozenset: (_FROZENSET, list),
    datetime.datetime: (_DATETIME, datetime.datetime.isoformat),
    datetime.date: (_DATE, datetime.date.isoformat),
    Decimal: (_DECIMAL, str),
}
_BACK: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _DATETIME: datetime.datetime.fromisoformat,
    _DATE: datetime.date.fromisoformat,
    _DECIMAL: Decimal,
    _BIG: int,
}

_encoder = msgspec.msgpack.Encoder()


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
        elif name == "method" or (name in _DEFAULTS and value == _DEFAULTS[name]):
            pass
        else:
            fields[name] = _plain(value, name)
    kind = type(request)
    if kind is not Request:
        fields["_class"] = f"{kind.__module__}.{kind.__qualname__}"
    body = request.body if request.method != "GET" else b""
    return Payload(method=request.method, body=body, scrapy=_encoder.encode(fields))


def restore(payload: Payload, spider: Spider, *, url: str, priority: int) -> Request:
    """The request again; `url` and `priority` are the entry's, where it does not say otherwise.

    Raises Unreadable: its callback or its class is no longer in the code here, or it was written by something else.
    """
    if payload.scrapy is None:
        return Request(url, method=payload.method, body=payload.body, headers=payload.headers, priority=priority)
    try:
        fields = msgspec.msgpack.decode(payload.scrapy, type=dict[str, Any], ext_hook=_extension)
    except (msgspec.DecodeError, ValueError) as fault:
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
    owner = getattr(function, "__self__", None)
    name = getattr(getattr(function, "__func__", None), "__name__", "")
    # By name, so that it is found again whatever the process; and only where that name means this very function.
    if owner is spider and name and getattr(getattr(spider, name, None), "__func__", None) is function.__func__:
        return str(name)
    raise Unstorable(f"its {which} {function!r} is no method of the spider; make it one")


def _method(spider: Spider, name: str, which: str) -> Callable[..., Any]:
    method = getattr(spider, name, None)
    if not callable(method):
        raise Unreadable("no_callback", f"the spider {spider.name} has no method {name} for its {which}")
    return method  # type: ignore[no-any-return]


def _class(path: str, base: type) -> Any:
    """A class by its path. Data never makes code run that is not there for it: only subclasses of `base` are taken."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(sys.modules.get(module) or import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise Unreadable("no_class", f"there is no {path} here") from None
    if not (isinstance(found, type) and (issubclass(found, base) or base is object)):
        raise Unreadable("no_class", f"{path} is no {base.__name__}")
    return found


# --- values -----------------------------------------------------------------------------------------------------------


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """The same in types that MessagePack keeps apart."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if depth > _DEEPEST:
        raise Unstorable(f"{where} is too deep, or holds itself")
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _extended(_BIG, str(value))
    if kind is list:
        return [_plain(one, where, depth + 1) for one in value]
    if kind is dict:
        return {_key(key, where): _plain(one, f"{where}[{key!r}]", depth + 1) for key, one in value.items()}
    if kind in _FORMS:
        code, form = _FORMS[kind]
        return _extended(code, _plain(form(value), where, depth + 1))
    if isinstance(value, Item):
        fields = {name: _plain(one, f"{where}.{name}", depth + 1) for name, one in ItemAdapter(value).items()}
        return _extended(_ITEM, [f"{kind.__module__}.{kind.__qualname__}", fields])
    raise Unstorable(
        f"{where} holds a {kind.__module__}.{kind.__qualname__}; only numbers, text, bytes, dates, lists, tuples, "
        "sets, dicts and Scrapy items travel"
    )


def _key(key: Any, where: str) -> Any:
    if type(key) in (str, int, bytes, float, bool, type(None)):
        return key
    raise Unstorable(f"{where} has a key of type {type(key).__qualname__}; make it text or a number")


def _extended(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encoder.encode(value))


def _extension(code: int, data: memoryview) -> Any:
    value = msgspec.msgpack.decode(data, ext_hook=_extension)
    if code == _ITEM:
        return _item(value)
    try:
        return _BACK[code](value)
    except KeyError:
        raise ValueError(f"extension {code} is not known") from None


def _item(value: Any) -> Item:
    path, fields = value
    kind = _class(path, Item)
    return kind(fields)  # type: ignore[no-any-return]


def attrs_of(meta: Mapping[str, Any]) -> dict[str, object] | None:
    """Of a request for another lane: what of its meta plain JSON can say."""
    attrs = meta.get("attrs")
    return dict(attrs) if isinstance(attrs, Mapping) else None
