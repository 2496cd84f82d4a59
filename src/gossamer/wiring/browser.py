"""Builds the fetch backend of rendered pages from settings. Imported only where pages are rendered."""

from collections.abc import Callable

from gossamer.errors import BrowserError, BrowserMissing
from gossamer.fetch.backend import FetchBackend
from gossamer.render.backend import BrowserBackend, Patience
from gossamer.render.browser import Browser, LaunchOptions
from gossamer.render.pool import BrowserLimits, BrowserPool
from gossamer.render.program import browser_user, find_program
from gossamer.render.requests import LoadLimits, PageLoader
from gossamer.render.shared_choices import SharedChoices
from gossamer.render.tab import WaitLimits
from gossamer.settings import Settings
from gossamer.telemetry.tally import BrowserCounts
from gossamer.wiring.refusals import load_refusals


def launch_options(settings: Settings) -> LaunchOptions:
    """Return the instructions to start a browser. Raises BrowserMissing if there is none that can be used."""
    browser = settings.browser
    return LaunchOptions(
        program=find_program(browser.program),
        user=browser_user(browser.user, sandbox=browser.sandbox),
        sandbox=browser.sandbox,
        document_bytes=settings.fetch.max_body,
    )


async def check_browser(settings: Settings) -> None:
    """Start a browser and end it. Raises BrowserMissing if none can be used here: because it is too old, or has no
    sandbox."""
    try:
        await (await Browser.start(launch_options(settings))).close()
    except BrowserError as error:
        raise BrowserMissing(error.detail) from None


def browser_backend(
    settings: Settings,
    http: FetchBackend,
    *,
    patience: Patience | None = None,
    counts: BrowserCounts | None = None,
    shared: SharedChoices | None = None,
    on_load: Callable[[str, float | None], None] | None = None,
) -> BrowserBackend:
    """Return a backend that fetches through `http` and renders; without a browser, it raises BrowserMissing for each
    page that is to be rendered. `patience`, `shared`: as for BrowserBackend. `counts`: those of the process; None:
    nothing reads them. `on_load`: as for PageLoader."""
    browser = settings.browser
    loads = LoadLimits(
        requests=browser.max_requests,
        bytes=browser.max_bytes,
        host_requests=browser.host_requests,
        cache_bytes=browser.cache,
        other_sites=browser.other_sites,
        load=frozenset(browser.load),
    )
    limits = BrowserLimits(
        browsers=browser.processes,
        tabs=browser.tabs,
        pages=browser.retire_pages,
        seconds=browser.retire_seconds,
        memory_bytes=browser.retire_memory,
    )
    waits = WaitLimits(seconds=browser.seconds, quiet_seconds=browser.quiet, document_bytes=settings.fetch.max_body)
    try:
        launch = launch_options(settings)
    except BrowserMissing as error:
        return BrowserBackend(http, error, shared=shared)
    pool = BrowserPool(launch, limits, PageLoader(http, loads, on_load), waits, counts)
    return BrowserBackend(http, pool, patience=patience, refusals=load_refusals(settings), shared=shared)


def no_browser(http: FetchBackend, shared: SharedChoices) -> BrowserBackend:
    """Return the backend of a worker that was not told to render: it leaves pages that are to be rendered to others,
    whatever browsers its machine has."""
    return BrowserBackend(http, BrowserMissing("This worker renders no pages: it has no --render."), shared=shared)
