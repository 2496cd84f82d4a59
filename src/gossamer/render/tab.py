"""One tab of a browser, in which one page after another of a site is built.

The document comes from the caller, who has fetched it; the tab hands it to the browser, answers what the page asks for,
waits until the document is quiet, and returns it. Every wait has an end.
"""

import asyncio
import base64
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from gossamer.errors import BrowserCrashed, BrowserError, BrowserHung, DevToolsRefused, PageEnded, ScriptFailed
from gossamer.fetch.exchange import FetchRequest, FetchResponse, header_lines
from gossamer.model.record import Rendering
from gossamer.model.rendering import RenderStep, RenderTerms
from gossamer.policy.urls import redirect_target
from gossamer.render.browser import Browser
from gossamer.render.open_page import OpenPage
from gossamer.render.requests import PageLoader, PageRequests
from gossamer.render.scripts import BOX, QUIET, SIZE, SNAPSHOT, STEP, TEXT

_BUSY_SECONDS = 2.0
"""Time in which a page returns its document. One that computes for longer is interrupted."""
_SNAPSHOT_SECONDS = 5.0
"""Time in which a page that was interrupted returns its document."""
_SCREENSHOT_SECONDS = 10.0
"""Time in which the browser returns a screenshot. Long pages take seconds."""
_CLOSE_SECONDS = 3.0
_BLANK_URL = "about:blank"
_SMALL_PICTURE = {"width": 1280, "height": 1024, "deviceScaleFactor": 1, "mobile": False, "scale": 0.05}
"""Window in which pages are laid out, and the scale at which the browser draws them, which no script of a page can see.
Nothing looks at the picture: a smaller one takes a quarter less CPU. Screenshots have a scale of their own."""
_STOP_ATTEMPTS = 200
"""Calls that end a navigation. The browser refuses them for the milliseconds in which documents are exchanged."""
_MOST_CONSOLE_ERRORS = 20
"""Errors in the console that a record has. More make records larger."""
_CONSOLE_CHARACTERS = 500
_MOST_CONSOLE_EVENTS = 500
"""Messages to the console after which a page is not listened to any more. Each costs this program time."""
_WORLD = "gossamer"
_WAIT_POLL_SECONDS = 0.1
"""Interval at which a step looks for the element that it waits for."""

Ended = Literal["quiet", "time", "moved"]
"""Reason why the waiting for a page ended, as its record has it."""


class WaitLimits(msgspec.Struct, frozen=True):
    """Limits of the waiting for a page."""

    seconds: float = 30.0
    """Time in which a page is built. What is there then is taken."""
    quiet_seconds: float = 0.25
    """Time without a change after which a document counts as complete."""
    document_bytes: int = 5 * 1024 * 1024
    """Characters of a document, approximately its bytes. A longer one is cut."""

    def changed_by(self, terms: RenderTerms | None) -> "WaitLimits":
        """Return the limits of a page whose crawl has these rules."""
        if terms is None:
            return self
        return WaitLimits(terms.seconds or self.seconds, terms.quiet_seconds or self.quiet_seconds, self.document_bytes)


class _PageState:
    """State of the page that a tab is building."""

    def __init__(self, request: FetchRequest, response: FetchResponse, requests: PageRequests) -> None:
        loop = asyncio.get_running_loop()
        self.url = request.url.partition("#")[0]
        self.response = response
        self.requests = requests
        self.is_served = False
        """True: the browser has the document."""
        self.is_shown = False
        """True: the document has taken the place of the one before. Only then are load events its own."""
        self.moved_to: str | None = None
        self.steps: list[int] = []
        """Number of times that each step was taken."""
        self.loaded: asyncio.Future[None] = loop.create_future()
        """Done when the load event has come, or the page loads no more."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when there is nothing to wait for: the page has moved, or its renderer has ended."""
        self.crash = ""
        self.fault = ""
        """Reason why the browser did not get the document."""
        self.console: list[str] = []
        """Errors in the console."""
        self.console_events = 0

    def finish(self, *, crash: str = "") -> None:
        """End the waiting."""
        self.crash = self.crash or crash
        if not self.ended.done():
            self.ended.set_result(None)


class Tab:
    """Tab of a browser. `render` is called by one task at a time."""

    def __init__(self, browser: Browser, target: str, session: str, context: str, key: tuple[str, str]) -> None:
        """`key`: the crawl and the site whose pages the tab builds."""
        self.browser = browser
        self.key = key
        self._target = target
        self._session = session
        self._context = context
        self._user_agent = ""
        self._page: _PageState | None = None
        self._world: int | None = None
        self._blank: asyncio.Future[None] | None = None
        """Done when the empty document has taken the place of the page."""
        self._listens = False
        """True: the browser passes on what pages write to the console."""
        self.crashed = False
        """True: its renderer has ended."""

    @classmethod
    async def open(cls, browser: Browser, key: tuple[str, str]) -> "Tab":
        """Open a tab whose pages share cookies and storage with no other tab."""
        devtools = browser.devtools
        answer = await devtools.call("Target.createBrowserContext", disposeOnDetach=True)
        context = answer["browserContextId"]
        devtools.send("Browser.setDownloadBehavior", behavior="deny", browserContextId=context)
        answer = await devtools.call("Target.createTarget", url=_BLANK_URL, browserContextId=context)
        target = answer["targetId"]
        answer = await devtools.call("Target.attachToTarget", targetId=target, flatten=True)
        tab = cls(browser, target, answer["sessionId"], context, key)
        devtools.listen(tab._session, tab._on_event)
        browser.tabs += 1
        try:
            await tab._prepare()
        except BaseException:
            await tab.close()
            raise
        return tab

    async def _prepare(self) -> None:
        """Switch on what pages need."""
        self._send("Inspector.enable")
        self._send("Network.setBypassServiceWorker", bypass=True)
        # New workers and windows wait until `_on_attached` has judged them.
        self._send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        self._send("Fetch.enable", patterns=[{"urlPattern": "*"}])
        # The page's process answers this one. A navigation to another process before that would lose what is enabled.
        self._send("Emulation.setDeviceMetricsOverride", **_SMALL_PICTURE)
        await self._call("Page.enable")

    async def render(
        self, request: FetchRequest, response: FetchResponse, loader: PageLoader, limits: WaitLimits
    ) -> FetchResponse:
        """Build the page of a response, and return the response with the document as its body.

        Raises BrowserErrors, after which the tab must be discarded."""
        load = request.page
        assert load is not None
        started = time.monotonic()
        requests = PageRequests(self.browser.devtools, self._session, load, loader)
        self._page = page = _PageState(request, response, requests)
        self._world = None
        self.browser.pages += 1
        try:
            await self._set_agent(request)
            if load.on_script_cookies is not None:
                self._send("Network.clearBrowserCookies")  # the session may have lost one since the page before
            for cookie in load.script_cookies:
                self._send("Network.setCookie", **cookie)
            if not self._listens:
                self._listens = True
                self._send("Runtime.enable")
            ended = await self._build(page, limits, started + limits.seconds, load.steps)
            if ended == "quiet" and load.on_open is not None:
                ended = await self._open_for(load.on_open, page, limits, started + limits.seconds)
            if page.crash:
                raise BrowserCrashed(page.crash)
            if load.on_script_cookies is not None:
                answer = await self._call("Network.getCookies", urls=[page.url])
                shown = [cookie for cookie in answer["cookies"] if not cookie["httpOnly"]]
                load.on_script_cookies(page.url, shown)
            body, cut, image, shot = b"", False, b"", ""
            if page.moved_to is None:
                body, cut = await self._snapshot(page, limits)
                if load.screenshot:
                    image, shot = await self._screenshot(load.screenshot)
        finally:
            self._page = None
            await requests.close()
        rendering = Rendering(
            because=load.because,
            ended=ended,
            seconds=time.monotonic() - started,
            requests=requests.sent,
            refused=requests.refused,
            cached=requests.cached,
            bytes=requests.bytes,
            steps=tuple(page.steps),
            screenshot=shot,  # type: ignore[arg-type]
            console=tuple(page.console),
            failed=tuple(requests.failed),
            answers=tuple(requests.answers),
            answers_left_out=requests.answers_left_out,
        )
        rendered = _rendered(response, body, rendering, moved_to=page.moved_to, cut=cut)
        rendered.screenshot = image
        return rendered

    async def blank(self) -> None:
        """Leave the page. After that nothing of it runs, and nothing that it began is in progress: the next page's
        response cannot go to a navigation of this one. Raises BrowserErrors."""
        self._blank = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._call("Page.navigate", url=_BLANK_URL)
                await self._blank
                await self._stop_loading()
        except TimeoutError:
            raise BrowserHung("the page does not give way to an empty one") from None
        finally:
            self._blank = None

    async def _stop_loading(self) -> None:
        """End a navigation that the page began while it was left. Its request comes before the answer of this call."""
        for _ in range(_STOP_ATTEMPTS):
            with contextlib.suppress(DevToolsRefused):
                await self._call("Page.stopLoading")
                return
        raise BrowserHung("the page does not give way to an empty one")

    async def close(self) -> None:
        """Close the tab with its cookies. A browser that does not do so in time is killed. May be repeated."""
        if self._context:
            context, self._context = self._context, ""
            self.browser.tabs -= 1
            self.browser.devtools.forget(self._session)
            with contextlib.suppress(BrowserCrashed, DevToolsRefused):
                try:
                    await self.browser.devtools.call(
                        "Target.disposeBrowserContext", seconds=_CLOSE_SECONDS, browserContextId=context
                    )
                except BrowserHung:
                    self.browser.kill()

    async def _build(
        self, page: _PageState, limits: WaitLimits, deadline: float, steps: tuple[RenderStep, ...]
    ) -> Ended:
        """Load the page, wait until it is complete, and take the steps. `deadline`: monotonic time. Returns the reason
        of the end."""
        navigation = asyncio.ensure_future(
            self._call("Page.navigate", seconds=limits.seconds + _SNAPSHOT_SECONDS, url=page.url)
        )
        try:
            await asyncio.wait((navigation, page.ended), return_when=asyncio.FIRST_COMPLETED)
            if navigation.done() and (fault := navigation.result().get("errorText")) and not page.ended.done():
                raise BrowserError(f"the page does not load: {page.fault or fault}")
        finally:
            navigation.cancel()
            with contextlib.suppress(asyncio.CancelledError, BrowserError):
                await navigation
        await asyncio.wait(
            {page.loaded, page.ended}, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
        )
        ended = await self._settle(page, limits, deadline)
        for step in steps:
            page.steps.append(0)
            if ended == "quiet":
                ended, page.steps[-1] = await self._take(step, page, limits, deadline)
        return ended

    async def _take(self, step: RenderStep, page: _PageState, limits: WaitLimits, deadline: float) -> tuple[Ended, int]:
        """Take one step, again while it changes the page. Returns how the waiting ended, and how often it was taken."""
        ended: Ended = "quiet"
        taken = 0
        if step.seconds and not step.selector:
            return await self._pause(step.seconds, page, limits, deadline)
        latest = min(deadline, time.monotonic() + step.seconds) if step.seconds else deadline
        while ended == "quiet" and taken < step.times and time.monotonic() < latest:
            if page.ended.done():
                return "moved", taken
            left = deadline - time.monotonic()
            try:
                size = await self._evaluate(SIZE, seconds=left)
                done = await self._evaluate(STEP, step.action, step.selector, step.value, seconds=left)
                if not done and step.action == "wait":
                    await asyncio.wait({page.ended}, timeout=min(_WAIT_POLL_SECONDS, left))
                    continue
                if not done:
                    break
                taken += 1
                ended = await self._settle(page, limits, deadline)
                if ended == "quiet" and size == await self._evaluate(SIZE, seconds=_BUSY_SECONDS):
                    break
            except BrowserHung:
                return "time", taken
        return "time" if ended == "quiet" and time.monotonic() >= deadline else ended, taken

    async def _open_for(
        self, use: Callable[[OpenPage], Awaitable[None]], page: _PageState, limits: WaitLimits, deadline: float
    ) -> Ended:
        """Let a spider use the page. `deadline`: monotonic time. Returns how that ended."""
        opened = OpenPage(page.url, _TabControl(self, page, limits, deadline))
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await use(opened)
        except TimeoutError:
            opened.ended = "time"
        except PageEnded:
            pass
        ended, opened.ended = opened.ended, "closed"  # the tab gets the next page
        return "moved" if page.moved_to is not None else ended  # type: ignore[return-value]

    async def run_script(self, script: str, *, seconds: float) -> Any:
        """Return the value of a script in the page's own world. Raises ScriptFailed."""
        try:
            answer = await self._call(
                "Runtime.evaluate", seconds=seconds, expression=script, awaitPromise=True, returnByValue=True
            )
        except DevToolsRefused as error:
            raise ScriptFailed(str(error)) from None
        if details := answer.get("exceptionDetails"):
            thrown = details.get("exception", {})
            raise ScriptFailed(str(thrown.get("description") or thrown.get("value") or details.get("text"))[:500])
        return answer["result"].get("value")

    async def _pause(self, seconds: float, page: _PageState, limits: WaitLimits, deadline: float) -> tuple[Ended, int]:
        """Let the page go on for a time. Returns as `_take`."""
        left = deadline - time.monotonic()
        await asyncio.wait({page.ended}, timeout=min(seconds, left))
        if seconds >= left:
            return "time", 0
        return await self._settle(page, limits, deadline), 1

    async def _settle(self, page: _PageState, limits: WaitLimits, deadline: float) -> Ended:
        """Wait until a loaded page is quiet. `deadline`: monotonic time."""
        while not page.ended.done():
            left = deadline - time.monotonic()
            if left <= 0 or not page.loaded.done():
                return "time"
            try:
                quiet = asyncio.ensure_future(
                    self._evaluate(QUIET, 1000 * limits.quiet_seconds, 1000 * left, seconds=left + 0.5)
                )
                await asyncio.wait({quiet, page.ended}, return_when=asyncio.FIRST_COMPLETED)
                if quiet.done():
                    is_quiet = quiet.result()
                    if is_quiet and page.requests.in_progress == 0:
                        return "quiet"
            except BrowserHung:
                return "time"
            finally:
                quiet.cancel()
                with contextlib.suppress(asyncio.CancelledError, BrowserError):
                    await quiet
            await page.requests.idle(max(0.0, deadline - time.monotonic()))
        return "moved"

    async def _snapshot(self, page: _PageState, limits: WaitLimits) -> tuple[bytes, bool]:
        """Return the document, and whether it was cut."""
        try:
            found = await self._evaluate(SNAPSHOT, page.url, limits.document_bytes, seconds=_BUSY_SECONDS)
        except BrowserHung:
            # Its script computes without end. It is interrupted, and the document taken as it is.
            self._send("Runtime.terminateExecution")
            found = await self._evaluate(SNAPSHOT, page.url, limits.document_bytes, seconds=_SNAPSHOT_SECONDS)
        return str(found["html"]).encode("utf-8", "replace"), bool(found["cut"])

    async def _screenshot(self, place: str) -> tuple[bytes, str]:
        """Return a screenshot as PNG, and its result for the record. A page without one is still a page."""
        try:
            box = await self._evaluate(BOX, place, seconds=_BUSY_SECONDS)
            if box is None:
                return b"", "missing"
            answer = await self._call(
                "Page.captureScreenshot",
                seconds=_SCREENSHOT_SECONDS,
                format="png",
                captureBeyondViewport=True,
                clip={**box, "scale": 1},
            )
        except (BrowserHung, DevToolsRefused):
            return b"", "failed"
        return base64.b64decode(answer["data"]), "taken"

    async def _evaluate(self, function: str, *arguments: Any, seconds: float) -> Any:
        """Call a JavaScript function beside the page's own scripts, and return its result."""
        written = ",".join(msgspec.json.encode(argument).decode() for argument in arguments)
        for is_last in (False, True):
            try:
                if self._world is None:
                    answer = await self._call(
                        "Page.createIsolatedWorld", seconds=seconds, frameId=self._target, worldName=_WORLD
                    )
                    self._world = answer["executionContextId"]
                answer = await self._call(
                    "Runtime.evaluate",
                    seconds=seconds,
                    expression=f"({function})({written})",
                    contextId=self._world,
                    awaitPromise=True,
                    returnByValue=True,
                )
                break
            except DevToolsRefused:
                self._world = None  # the page has replaced its document, and with it the world
                if is_last:
                    raise
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("text")))
        return answer["result"].get("value")

    async def _set_agent(self, request: FetchRequest) -> None:
        """Let scripts read the User-Agent that the requests have."""
        agent = next((value for name, value in request.headers if name.lower() == "user-agent"), "")
        if agent != self._user_agent:
            await self._call("Emulation.setUserAgentOverride", userAgent=agent)
            self._user_agent = agent

    async def _call(self, method: str, *, seconds: float = 10.0, **parameters: Any) -> dict[str, Any]:
        return await self.browser.devtools.call(method, session=self._session, seconds=seconds, **parameters)

    def _send(self, method: str, **parameters: Any) -> None:
        self.browser.devtools.send(method, session=self._session, **parameters)

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_event(self, method: str, event: dict[str, Any]) -> None:
        """Handle an event of the tab."""
        page = self._page
        if method == "Fetch.requestPaused":
            self._on_paused(page, event)
        elif method == "Page.loadEventFired" or (
            # A page that tried to lead elsewhere, and stays, has no load event.
            method == "Page.frameStoppedLoading" and event["frameId"] == self._target
        ):
            if page is not None and page.is_shown and not page.loaded.done():
                page.loaded.set_result(None)
        elif method == "Page.frameNavigated":
            self._on_navigated(page, event["frame"])
        elif method == "Page.javascriptDialogOpening":
            # Leaving a page is always permitted, everything else is declined.
            self._send("Page.handleJavaScriptDialog", accept=event.get("type") == "beforeunload")
        elif method in ("Inspector.targetCrashed", "Inspector.detached", "Target.detachedFromTarget"):
            if method != "Target.detachedFromTarget" or event.get("sessionId") == self._session:
                self.crashed = True
                self._end_blank()
                if page is not None:
                    page.finish(crash=str(event.get("reason") or "the page's process has ended"))
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            if page is not None and page.is_served:
                self._on_console(page, event)
        elif method == "Target.attachedToTarget":
            self._on_attached(event)

    def _on_paused(self, page: _PageState | None, event: dict[str, Any]) -> None:
        """Answer a request, or begin to."""
        if page is None:
            self._fail(event, "Aborted")
        elif event["resourceType"] != "Document" or event["frameId"] != self._target:
            page.requests.on_paused(event)
        elif not page.is_served and event["request"]["url"].partition(":")[0] != page.url.partition(":")[0]:
            # Its scripts, styles and links would be those of another scheme.
            page.fault = f"the browser asks for {event['request']['url']:.500} in place of {page.url:.500}"
            self._fail(event, "Aborted")
        elif not page.is_served:
            page.is_served = True
            page.requests.on_document(event, page.response)
        else:
            self._on_move(page, event)

    def _on_navigated(self, page: _PageState | None, frame: dict[str, Any]) -> None:
        """Note that a document has taken the place of another."""
        if frame["id"] != self._target:
            return
        if frame["url"] == _BLANK_URL:
            self._end_blank()
        elif page is not None and page.is_served:
            page.is_shown = True

    def _end_blank(self) -> None:
        if self._blank is not None and not self._blank.done():
            self._blank.set_result(None)

    def _on_move(self, page: _PageState, event: dict[str, Any]) -> None:
        """End the page if it leads to another URL. One that loads itself again, or sends a form, stays."""
        self._fail(event, "Aborted")
        target = redirect_target(page.url, event["request"]["url"])
        if target is not None and target.partition("#")[0] != page.url and event["request"]["method"] == "GET":
            page.moved_to = target
            page.finish()

    def _on_console(self, page: _PageState, event: dict[str, Any]) -> None:
        """Note an error in the console. A page that writes very much is not listened to any more."""
        page.console_events += 1
        if page.console_events > _MOST_CONSOLE_EVENTS:
            if self._listens:
                self._listens = False
                self._send("Runtime.disable")
            return
        if len(page.console) >= _MOST_CONSOLE_ERRORS:
            return
        text = ""
        if details := event.get("exceptionDetails"):
            text = details.get("exception", {}).get("description") or details.get("text") or ""
        elif event.get("type") in ("error", "assert"):
            arguments = event.get("args", ())
            text = " ".join(str(one.get("value", one.get("description", ""))) for one in arguments)
        if text:
            page.console.append(text[:_CONSOLE_CHARACTERS])

    def _on_attached(self, event: dict[str, Any]) -> None:
        """Let workers of the page run, whose requests the tab sees. Anything else that a page opens is closed."""
        opened = event["targetInfo"]
        if opened["type"] == "worker":
            self.browser.devtools.send("Runtime.runIfWaitingForDebugger", session=event["sessionId"])
        elif opened["targetId"] != self._target:
            self.browser.devtools.send("Target.closeTarget", targetId=opened["targetId"])

    def _fail(self, event: dict[str, Any], reason: str) -> None:
        self._send("Fetch.failRequest", requestId=event["requestId"], errorReason=reason)


class _TabControl:
    """Implements PageControl for the page that a tab is building."""

    def __init__(self, tab: Tab, page: _PageState, limits: WaitLimits, deadline: float) -> None:
        self._tab = tab
        self._page = page
        self._limits = limits
        self._deadline = deadline

    @property
    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    async def take(self, step: RenderStep) -> tuple[Ended, int]:
        return await self._tab._take(step, self._page, self._limits, self._deadline)

    async def text(self, selector: str) -> str | None:
        found: str | None = await self._tab._evaluate(TEXT, selector, seconds=self._left)
        return found

    async def document(self) -> str:
        found = await self._tab._evaluate(SNAPSHOT, self._page.url, self._limits.document_bytes, seconds=self._left)
        return str(found["html"])

    async def run(self, script: str) -> Any:
        return await self._tab.run_script(script, seconds=self._left)


def _rendered(
    response: FetchResponse, body: bytes, rendering: Rendering, *, moved_to: str | None, cut: bool
) -> FetchResponse:
    """Return the response with the document as its body, which is in UTF-8 whatever the server's was."""
    headers = [pair for pair in response.headers if pair[0].lower() != "content-type"]
    types = header_lines(response.headers, "content-type")
    kind = types[-1].partition(";")[0].strip() if types else ""
    return msgspec.structs.replace(
        response,
        headers=[*headers, ("Content-Type", f"{kind or 'text/html'}; charset=utf-8")],
        headers_by_name=None,
        body=body,
        truncated=cut,
        moved_to=moved_to,
        rendering=rendering,
    )
