"""A start message and what it asks for."""

import json
from types import MethodType
from typing import Any

from scrapy import FormRequest, Request, Spider

from gossamer.errors import BadInput
from gossamer.policy.urls import canonical


class BadMessage(BadInput):
    """This start message cannot be used."""

    only_detail = False


_TEXT = (str, int, float)


def read(data: bytes | str, encoding: str, spider: Spider | None = None) -> Request:
    """A URL, or a JSON object: `url`, and what else scrapy-redis knows: `method`, `meta`, all others as form fields.

    `headers`, `cookies`, `cb_kwargs` as objects, `body` as text, and `priority`, `dont_filter`, `flags`, `callback`,
    `errback` (names of methods of `spider`) in a `request` object: there they cannot be taken for form fields. Never
    filtered unless that object says so. Raises BadMessage with the reason.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode(encoding)
        except (UnicodeDecodeError, LookupError) as fault:
            raise BadMessage(f"it is not {encoding}: {fault}") from None
    text = data.strip()
    if not text.startswith("{"):
        _check(text)
        return FormRequest(text, dont_filter=True)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadMessage(f"it is no JSON: {fault}") from None
    return _of(fields, spider)


def _of(fields: dict[str, Any], spider: Spider | None) -> Request:
    url = fields.pop("url", None)
    if not url:
        raise BadMessage("it has no url")
    if not isinstance(url, str):
        raise BadMessage(f"url: {url!r} is no text")
    _check(url)
    method = fields.pop("method", "GET")
    meta = fields.pop("meta", None) or {}
    more = fields.pop("request", {}) if isinstance(fields.get("request"), dict) else {}
    if not isinstance(method, str) or not method.isalpha():
        raise BadMessage(f"method: {method!r} is none")
    if not isinstance(meta, dict):
        raise BadMessage("meta is no object")
    for name, value in fields.items():
        if not isinstance(value, _TEXT) and not (
            isinstance(value, list) and all(isinstance(one, _TEXT) for one in value)
        ):
            raise BadMessage(f"{name} is no form field: text, a number, or a list of those")
    form = {
        name: [str(one) for one in value] if isinstance(value, list) else str(value) for name, value in fields.items()
    }
    return _built(url, method.upper(), meta, form, _resolved(more, spider))


_MORE = {
    "headers": dict, "cookies": (dict, list), "cb_kwargs": dict, "body": str, "priority": int, "dont_filter": bool,
    "flags": list, "encoding": str, "callback": MethodType, "errback": MethodType,
}  # fmt: skip


def _built(url: str, method: str, meta: dict[str, Any], form: dict[str, Any], more: dict[str, Any]) -> Request:
    for name, value in more.items():
        if name not in _MORE:
            raise BadMessage(f"request.{name} is not known")
        if not isinstance(value, _MORE[name]):  # type: ignore[arg-type]
            raise BadMessage(f"request.{name}: {value!r} is of the wrong type")
    if "body" in more and form:
        raise BadMessage(f"request.body and a form field ({next(iter(form))}) exclude each other")
    arguments = {"dont_filter": True, "meta": meta, "method": method} | more
    try:
        return FormRequest(url, formdata=form or None, **arguments)
    except (TypeError, ValueError, UnicodeError) as fault:
        raise BadMessage(str(fault)) from None


def _resolved(more: dict[str, Any], spider: Spider | None) -> dict[str, Any]:
    """With methods in the place of their names."""
    resolved = dict(more)
    for field in ("callback", "errback"):
        name = more.get(field)
        if not isinstance(name, str):
            continue
        if not isinstance(method := getattr(spider, name, None), MethodType):
            raise BadMessage(f"request.{field}: the spider has no method {name}")
        resolved[field] = method
    return resolved


def _check(url: str) -> None:
    try:
        canonical(url)
    except BadInput as fault:
        raise BadMessage(str(fault)) from None
