"""Rules by which a Scrapy project renders pages: its settings, and `render` in the meta of a request, as plain data.

Stored requests have `render` in their meta, so the key and the names in its mapping must not change.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec
from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import BaseSettings

from gossamer.errors import BadInput
from gossamer.extract.render_steps import check_browser_selector, read_steps
from gossamer.model.rendering import ExtraKind, OtherSites, RenderStep, RenderTerms
from gossamer.policy.scope import UrlExpressions
from gossamer.scrapy.entries import RENDER_KEY as KEY
from gossamer.scrapy.proxies import setting
from gossamer.settings import Settings

Mode = Literal["never", "auto", "always"]
_KEYS = ("steps", "wait", "capture", "screenshot", "seconds", "quiet", "other_sites", "load")


class RenderOptions(msgspec.Struct, frozen=True):
    """Rules for the building of one page."""

    steps: tuple[RenderStep, ...] = ()
    captures: Callable[[str], bool] | None = None
    """Returns whether the answer of a URL is captured. None: none is."""
    screenshot: str = ""
    terms: RenderTerms | None = None


class RenderRules:
    """Rules of one project."""

    def __init__(self, scrapy_settings: BaseSettings, settings: Settings) -> None:
        """Raises BadInput for invalid settings."""
        self._page_seconds = settings.browser.seconds
        self.mode = _mode(setting(scrapy_settings, "GOSSAMER_RENDER"))
        given = setting(scrapy_settings, "GOSSAMER_RENDER_OPTIONS") or {}
        try:
            self._defaults: dict[str, Any] = dict(json.loads(given) if isinstance(given, str) else given)
            self._read(self._defaults)
        except (BadInput, TypeError, ValueError) as error:
            raise BadInput(f"GOSSAMER_RENDER_OPTIONS: {error}") from None

    def is_asked(self, request: Request) -> bool:
        """Return whether a request is to be rendered in any case, so that only a process with a browser takes it."""
        value = _wish(request)
        return self.mode == "always" if value is None else value is not False

    def reason(self, request: Request) -> str:
        """Return why a request is rendered: `asked`, or `auto` where its page decides. Empty: it is not."""
        if self.is_asked(request):
            return "asked"
        return "auto" if self.mode == "auto" and _wish(request) is None else ""

    def options(self, request: Request) -> RenderOptions:
        """Return the rules for a request. Raises BadInput, with what is wrong in its meta."""
        value = request._meta.get(KEY) if request._meta else None
        if value is None or isinstance(value, bool):
            return self._read(self._defaults)
        if not isinstance(value, Mapping):
            raise BadInput(f"meta['render'] is {value!r:.80}. Write True, False, or a mapping with {', '.join(_KEYS)}.")
        try:
            return self._read({**self._defaults, **value})
        except BadInput as error:
            raise BadInput(f"meta['render']: {error}") from None

    def _read(self, given: Mapping[str, Any]) -> RenderOptions:
        if unknown := [name for name in given if name not in _KEYS]:
            raise BadInput(f"there is no {unknown[0]!r:.40}. Write one of: {', '.join(_KEYS)}.")
        waits = [] if given.get("wait") in (None, "") else [f"wait {_wait(given['wait'])}"]
        texts = [*waits, *_texts(given, "steps")]
        limit = "GOSSAMER_BROWSER__SECONDS, or 'seconds'"
        seconds, quiet = _seconds(given, "seconds"), _seconds(given, "quiet")
        steps = read_steps(texts, page_seconds=seconds or self._page_seconds, limit=limit)
        screenshot = given.get("screenshot") or ""
        if not isinstance(screenshot, str):
            raise BadInput(f"'screenshot' is {screenshot!r:.80}. Write 'page', or the CSS selector of an element.")
        if screenshot not in ("", "page"):
            check_browser_selector(screenshot)
        patterns = _texts(given, "capture")
        terms = RenderTerms(
            seconds=seconds,
            quiet_seconds=quiet,
            other_sites=_one_of(given, "other_sites", OtherSites) or "",
            load=tuple(sorted({_one_of({"load": kind}, "load", ExtraKind) for kind in _texts(given, "load")})),
        )
        return RenderOptions(
            steps,
            UrlExpressions(patterns, "capture", from_host=True).matches if patterns else None,
            screenshot,
            None if terms == RenderTerms() else terms,
        )


def _wish(request: Request) -> Any:
    """Return what a request says about rendering; None: nothing. Requests of Scrapy itself, for robots.txt and the
    files of media pipelines, are no pages, whatever the server answers."""
    value = request._meta.get(KEY) if request._meta else None
    return False if value is None and request.callback is NO_CALLBACK else value


def _mode(value: Any) -> Mode:
    if value in get_args(Mode):
        return value  # type: ignore[no-any-return]
    raise BadInput(f"GOSSAMER_RENDER: {value!r:.40} is neither never, auto nor always")


def _wait(value: Any) -> str:
    """Return what a step waits for: a selector, or a number of seconds."""
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise BadInput(f"'wait' is {value!r:.80}. Write a CSS selector, or a number of seconds.")


def _texts(given: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts; a single text counts as a list of one."""
    value = given.get(name) or ()
    found = [value] if isinstance(value, str) else value
    if isinstance(found, list | tuple) and all(isinstance(text, str) for text in found):
        return list(found)
    raise BadInput(f"{name!r} is {value!r:.80}. Write a text, or a list of texts.")


def _seconds(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name) or 0.0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 600:
        return float(value)
    raise BadInput(f"{name!r} is {value!r:.80}. Write seconds, from 0 to 600.")


def _one_of(given: Mapping[str, Any], name: str, kinds: Any) -> Any:
    value = given.get(name)
    if not value or value in get_args(kinds):
        return value
    raise BadInput(f"{name!r}: there is no {value!r:.40}. Write one of: {', '.join(get_args(kinds))}.")
