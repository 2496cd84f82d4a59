"""Fetch backend that builds pages in a browser (the contract: `fetch/backend.py`).

The page itself is fetched by the HTTP client, whose response the browser then gets: the bytes of the server, the hit of
the rate limit, robots.txt, redirects and retries are those of every crawl.
"""

import asyncio

import msgspec

from gossamer.errors import BrowserBusy, BrowserError, BrowserMissing
from gossamer.extract.encoding import content_type_of, is_html
from gossamer.extract.refusals import find_refusal
from gossamer.fetch.backend import FetchBackend, PageLoad
from gossamer.fetch.exchange import FetchRequest, FetchResponse, first_header, header_lines, redirect_location
from gossamer.policy.emptiness import has_scripts, needs_scripts
from gossamer.policy.patterns import url_pattern
from gossamer.policy.refusals import DEFAULT_FINDER, RefusalFinder
from gossamer.policy.render_learning import RenderChoice, RenderKey, RenderLearner, RenderVerdict
from gossamer.policy.retry import is_worth_a_retry
from gossamer.render.comparison import has_gained
from gossamer.render.pool import BrowserPool
from gossamer.render.shared_choices import SharedChoices


class Patience(msgspec.Struct, frozen=True):
    """Pages in progress from which on BrowserBusy is raised for further ones that were not leased as pages to be
    rendered."""

    unsent: int
    """For a page that is known to be rendered before it is requested."""
    sent: int
    """For a page whose response tells it: then it is there already, and would have to be fetched once more."""


class BrowserBackend:
    """Fetch backend of pages that scripts build."""

    def __init__(
        self,
        http: FetchBackend,
        pool: BrowserPool | BrowserMissing,
        *,
        patience: Patience | None = None,
        refusals: RefusalFinder = DEFAULT_FINDER,
        shared: SharedChoices | None = None,
    ) -> None:
        """`pool`: its browsers, or why there are none. Then BrowserMissing is raised for each page that is to be
        rendered: before its request, unless only the response tells whether it is (`auto`). `patience` None: any
        number of pages waits for a tab. `shared`: what all workers of a crawl have learnt; None: each for itself."""
        self._http = http
        self._pool = pool
        self._patience = patience
        self._refusals = refusals
        self.pages_in_progress = 0
        """Pages that the browsers build, or that wait for a free tab."""
        self.unasked_in_progress = 0
        """Pages among these that were not leased as pages to be rendered."""
        self._learner = RenderLearner()
        self._shared = shared
        self._asking: dict[RenderKey, asyncio.Task[RenderVerdict | None]] = {}
        """Look-ups in progress of what others have learnt."""
        self._news = asyncio.Event()
        """Set when something was learnt, and then replaced."""

    async def start(self) -> None:
        """Start the first browser before anything is fetched. Raises BrowserMissing if none can be used here."""
        if isinstance(self._pool, BrowserMissing):
            raise self._pool
        try:
            await self._pool.start()
        except BrowserError as error:
            raise BrowserMissing(error.detail) from None

    async def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> FetchResponse:
        """Implement FetchBackend."""
        page = request.page
        if isinstance(self._pool, BrowserMissing) and page is not None and page.because != "auto":
            raise BrowserMissing(str(self._pool), why=_reason(page))
        if page is not None and page.because == "match" and not page.in_lane:
            self._check_patience(was_sent=False, why="match")
        response = await self._http.fetch(request, timeout_seconds, wait_for_room=wait_for_room)
        if page is None or not _is_page(response):
            return response
        if find_refusal(
            response.status, response.headers, response.body,
            url=request.url, requested=request.url, is_built=True, finder=self._refusals,
        ):  # fmt: skip
            return response  # a browser that runs the script of a challenge would get around the refusal
        if not page.learns or page.because == "match":
            return await self._render(request, response)
        return await self._learn(request, page, response)

    async def _learn(self, request: FetchRequest, page: PageLoad, response: FetchResponse) -> FetchResponse:
        """Render a page of a crawl that renders where it is needed, or return the response; and learn from it."""
        is_open = page.because == "auto" and not page.why
        if is_open and not has_scripts(response.body):
            return _chosen(response, "plain:no_scripts")
        key = RenderKey(page.crawl, url_pattern(request.url), needs_scripts(response.body))
        why = page.why
        if is_open:
            choice = await self._choose(key, page.site)
            if not choice.render:
                return _chosen(response, f"plain:{choice.why}")
            why = choice.why
        else:
            self._learner.begin(key)
        try:
            if not page.in_lane and page.because == "auto":
                self._check_patience(was_sent=True, why=f"auto:{why}")
            rendered = await self._render(request, response)
            changed = rendered.moved_to is not None or has_gained(
                request.url, response.body, rendered.body, site=page.site
            )
            verdict = self._learner.learn(key, changed=changed)
        except BaseException:
            self._learner.give_up(key)
            raise
        finally:
            self._news.set()
            self._news = asyncio.Event()
        if verdict is not None and self._shared is not None:
            self._shared.write(key, page.site, verdict)
        return _chosen(rendered, f"rendered:{why}") if why else rendered

    async def _choose(self, key: RenderKey, site: str) -> RenderChoice:
        """Decide on a page. Waits for the first pages of its kind, which are being rendered. Raises BrowserMissing
        where this worker has no browser, and another one is to have the page."""
        await self._ask_others(key, site)
        if isinstance(self._pool, BrowserMissing):
            return await self._choose_for_others(key, self._pool)
        while (choice := self._learner.choose(key)) is None:
            await self._news.wait()
        return choice

    async def _choose_for_others(self, key: RenderKey, missing: BrowserMissing) -> RenderChoice:
        """Return the decision to keep a page, or raise BrowserMissing: it is left to a worker with a browser, which
        also decides on what is not known yet."""
        if not self._learner.is_known(key):
            has_browsers = self._shared is not None and await self._shared.has_browsers()
            if has_browsers:
                self._learner.forget(key)  # the next page looks it up again
            elif not key.is_empty:
                return RenderChoice(False, "no_browser")
            raise BrowserMissing(str(missing), was_sent=True, why="auto")
        choice = self._learner.choose(key)
        assert choice is not None
        if not choice.render:
            return choice
        self._learner.give_up(key)
        raise BrowserMissing(str(missing), was_sent=True, why=f"auto:{choice.why}")

    async def _ask_others(self, key: RenderKey, site: str) -> None:
        """Look up what other workers have learnt, if that matters now. Pages of one kind share the look-up."""
        if self._shared is None or not self._learner.asks_others(key):
            return
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._shared.read(key, site))
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        self._learner.adopt(key, await asyncio.shield(asking))

    async def _render(self, request: FetchRequest, response: FetchResponse) -> FetchResponse:
        """Build the page of a response."""
        page = request.page
        assert page is not None
        if isinstance(self._pool, BrowserMissing):
            raise BrowserMissing(str(self._pool), was_sent=True, why=_reason(page))
        if page.on_response is not None:
            page.on_response(request.url, response)
        unasked = not page.in_lane
        self.pages_in_progress += 1
        self.unasked_in_progress += unasked
        try:
            return await self._pool.render(request, response)
        except BrowserError as error:
            error.response = response
            raise
        except BrowserMissing as error:  # found out by the first page
            raise BrowserMissing(str(error), was_sent=True, why=_reason(page)) from None
        finally:
            self.pages_in_progress -= 1
            self.unasked_in_progress -= unasked

    def _check_patience(self, *, was_sent: bool, why: str) -> None:
        """Raise BrowserBusy if a page is not to wait for a tab. `was_sent`: it was requested already. `why`: the reason
        why it is to be rendered."""
        patience, waiting = self._patience, self.pages_in_progress
        if patience is not None and waiting >= (patience.sent if was_sent else patience.unsent):
            raise BrowserBusy(f"{waiting} pages wait for the browser", was_sent=was_sent, why=why)

    async def close(self) -> None:
        """End the browsers."""
        if isinstance(self._pool, BrowserPool):
            await self._pool.close()
        if self._shared is not None:
            await self._shared.close()


def _reason(page: PageLoad) -> str:
    """Return why a page is to be rendered, as `Payload.render` has it."""
    return "" if page.because == "asked" else ":".join(filter(None, (page.because, page.why)))


def _chosen(response: FetchResponse, choice: str) -> FetchResponse:
    """Return a response with the decision whether its page is rendered."""
    response.render_choice = choice
    return response


def _is_page(response: FetchResponse) -> bool:
    """Return whether a browser would show a response as a page."""
    if redirect_location(response.status, response.headers) is not None or is_worth_a_retry(response.status):
        return False
    if (first_header(response.headers, "content-disposition") or "").strip().lower().startswith("attachment"):
        return False
    content_type = content_type_of(header_lines(response.headers, "content-type"))
    return bool(response.body) and is_html(content_type, response.body, response.headers)
