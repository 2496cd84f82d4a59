"""Open page in a browser, for spiders: what `Spider.on_page` gets.

Spiders outside this project use it: names and arguments are fixed; arguments with a default may be added.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from gossamer.errors import PageEnded
from gossamer.extract.render_steps import check_browser_selector
from gossamer.model.rendering import MOST_TIMES, Action, RenderStep

T = TypeVar("T")

_ENDS = {"moved": "it leads to another URL", "time": "its seconds are over", "closed": "on_page has returned"}


class PageControl(Protocol):
    """Tab that an open page is in."""

    async def take(self, step: RenderStep) -> tuple[str, int]:
        """Take a step. Returns how the waiting after it ended (`quiet`, `time`, `moved`), and how often it was
        taken."""

    async def text(self, selector: str) -> str | None:
        """Return the text of the first element that matches. None: there is none."""

    async def document(self) -> str:
        """Return the document as it is now."""

    async def run(self, script: str) -> Any:
        """Return the value of a script that runs in the page. Raises ScriptFailed."""


class OpenPage:
    """Page that is open in a browser. Its methods wait until the page is quiet again, within the seconds of the page;
    then, and when the page leads to another URL, they raise PageEnded.

    Selectors are CSS, without `::text` and `::attr()`.
    """

    def __init__(self, url: str, control: PageControl) -> None:
        self.url = url
        """URL of the page."""
        self._control = control
        self.ended = "quiet"
        """`quiet`: the page can be used; `time`: its seconds are over; `moved`: it leads to another URL; `closed`:
        `on_page` has returned."""

    async def click(self, selector: str, times: int = 1) -> int:
        """Click the first element that matches, up to so many times while that changes the page. Returns how often."""
        return await self._take("click", selector, times=times)

    async def fill(self, selector: str, value: str) -> bool:
        """Set the value of a field. Returns whether there is one."""
        return bool(await self._take("fill", selector, value=value))

    async def submit(self, selector: str) -> bool:
        """Send a form by the page's own script. Returns whether there is one."""
        return bool(await self._take("submit", selector))

    async def scroll(self, times: int = 1) -> int:
        """Scroll to the end, up to so many times while the page grows. Returns how often."""
        return await self._take("scroll", times=times)

    async def wait(self, selector: str = "", seconds: float = 5.0) -> bool:
        """Wait until there is such an element, at most so long; without a selector, for that time. Returns whether
        there is one."""
        return bool(await self._take("wait", selector, seconds=seconds))

    async def text(self, selector: str) -> str | None:
        """Return the text of the first element that matches, as a reader sees it. None: there is none."""
        check_browser_selector(selector)
        return await self._while_open(lambda: self._control.text(selector))

    async def html(self) -> str:
        """Return the document as it is now."""
        return await self._while_open(self._control.document)

    async def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page, such as `window.state.items`; of a promise, its
        result. The value must be JSON. Raises ScriptFailed."""
        return await self._while_open(lambda: self._control.run(script))

    async def _take(
        self, action: Action, selector: str = "", *, times: int = 1, value: str = "", seconds: float = 0.0
    ) -> int:
        if selector:
            check_browser_selector(selector)
        step = RenderStep(action, selector, min(max(1, times), MOST_TIMES), value, seconds)
        self.ended, taken = await self._while_open(lambda: self._control.take(step))
        self._check_open()
        return taken

    async def _while_open(self, ask: Callable[[], Awaitable[T]]) -> T:
        self._check_open()
        return await ask()

    def _check_open(self) -> None:
        """Raise PageEnded if the page can be used no more."""
        if self.ended != "quiet":
            raise PageEnded(_ENDS[self.ended])
