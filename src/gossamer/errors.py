"""Every error that Gossamer raises on purpose.

The first line of a class's docstring is the message that a person reads; details follow it after a colon.

Fixed: which class an error is derived from, because callers catch the base classes (a call that raised
FrontierUnavailable is repeated, one that raised CrawlRefused is not), and the words in `kind` and `reason`, which users
find in records and counters.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from gossamer.option_names import label


class GossamerError(Exception):
    """Gossamer cannot continue."""

    exit_code: ClassVar[int] = 2
    """Exit code of a command that ends with this error. Scripts test for it (docs/reference/exit-codes.md): fixed."""
    only_detail: ClassVar[bool] = False
    """True: the details are the whole message, because they name the value and what to do."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        if detail and self.only_detail:
            super().__init__(detail)
            return
        # Each class needs a docstring: its first line is the message.
        message = (type(self).__doc__ or "").strip().splitlines()[0].removesuffix(".")
        super().__init__(f"{message}: {detail}" if detail else f"{message}.")


class BadInput(GossamerError):
    """The input cannot be used."""

    only_detail = True

    def __init__(self, detail: str = "", *, option: str = "") -> None:
        """`detail`: the message, without the name of the option."""
        super().__init__(f"{label(option)}: {detail}" if option else detail)
        self.fault = detail
        """The message without the name of the option."""
        self.option = option
        """Option whose value cannot be used, as programs write it. Empty: the message names what it is about."""


class BadSetting(BadInput, ValueError):
    """The setting is not valid."""


class BadSpider(BadInput):
    """The spider cannot be loaded."""


class BadExtraction(BadInput):
    """The extraction rules are not valid."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
        super().__init__(f"{place}: {reason}" if place else reason)
        self.path = path
        """Keys and positions that lead to the faulty part. Empty: the whole object."""
        self.place = place
        """The path as text: `rules[0].fields.price.type`."""
        self.reason = reason


class BadUrl(BadInput):
    """This is not an http or https URL."""

    only_detail = False
    reason = "bad_url"
    """Word for the reason why a link is not followed; must not change. Each subclass has its own. Counters and records
    have it under the name that `drop_reason` (worker/drops.py) gives it."""


class BadScheme(BadUrl):
    """Only http and https URLs are crawled."""

    reason = "scheme"


class UrlTooLong(BadUrl):
    """The URL is too long."""

    reason = "too_long"


class Interrupted(GossamerError):
    """Interrupted."""


class Declined(Interrupted):
    """The person answered no."""

    only_detail = True


# --- the frontier: the shared store of the requests to fetch, on one or more Valkey or Redis servers ------------------


class FrontierError(GossamerError):
    """The frontier reported an error."""


class FrontierUnavailable(FrontierError):
    """The frontier could not be reached.

    The caller cannot know whether the call was carried out, and may repeat it.
    """

    exit_code = 4  # the same command may succeed later


class FrontierForgot(FrontierUnavailable):
    """The frontier may have lost data that it confirmed before a connection was lost."""


class FrontierFull(FrontierError):
    """The frontier's server is out of memory; it takes no new requests and links until some is free."""


class FrontierIncompatible(FrontierError):
    """This frontier was written by another version of Gossamer."""


class FrontierBusy(FrontierError):
    """The frontier in this data directory is in use by another running crawl or service."""


class CrawlRefused(FrontierError):
    """This crawl takes no more requests."""

    is_running = False
    """True: only a fresh run was refused, because the crawl is running."""


class LeaseLost(FrontierError):
    """This request is no longer leased to this worker; another worker will get it."""


class ServerUnsuitable(FrontierError):
    """The frontier's server cannot be used as it is."""


class ServerMissing(GossamerError):
    """No Valkey or Redis server program was found."""


class ServerFailed(FrontierUnavailable):
    """The frontier's own server did not start."""

    exit_code = 2  # not 4: a server that does not start will usually not start at the next attempt, either


class PoliciesChanged(FrontierError):
    """The domain policies were changed in the meantime; load them again and repeat the edit."""


# --- the bus: the message queue on which requests arrive and pages are published --------------------------------------


class BusError(GossamerError):
    """The bus reported an error."""


class BusUnavailable(BusError):
    """The bus could not be reached.

    The caller cannot know whether the call was carried out, and may repeat it.
    """

    exit_code = 4  # the same command may succeed later


class BusFull(BusError):
    """The bus has no room; nothing can be published until it has."""


class MessageTooLarge(BusError):
    """The message is larger than the bus accepts."""


# --- the history: the database that remembers crawls ------------------------------------------------------------------


class HistoryUnavailable(GossamerError):
    """The database of the history could not be reached.

    The caller cannot know whether the call was carried out, and may repeat it.
    """

    exit_code = 4  # the same command may succeed later


class HistoryRefused(GossamerError):
    """The database of the history refused a row: the same row will be refused again."""


# --- requests that clients submit -------------------------------------------------------------------------------------


def about_field(field: str, reason: str) -> str:
    """Return a sentence on a field of a request; an empty field: on the whole request."""
    if not field:
        return reason
    # `_explain_fault` in model/messages/reader.py words a missing field so that its name is the subject.
    return f"{field} {reason}" if reason.startswith("is missing") else f"{field}: {reason}"


class RequestRejected(BadInput):
    """This request is not valid."""

    only_detail = False

    def __init__(self, reason: str, *, field: str = "", others: Sequence["RequestRejected"] = ()) -> None:
        """`others`: faults of further fields, which the message names, too."""
        super().__init__(
            "; ".join([about_field(field, reason), *(about_field(one.field, one.reason) for one in others)])
        )
        self.field: str = field
        """Path of the invalid field, with dots. Empty when the message as a whole is invalid."""
        self.reason: str = reason
        self.others = tuple(others)


# --- fetching ---------------------------------------------------------------------------------------------------------


class FetchError(GossamerError):
    """The page could not be fetched."""

    kind = "fetch"
    """Word for records and counters; must not change. Each subclass has its own, and a row in the table of
    policy/retry.py that says whether the request is repeated. Further attributes of a subclass are facts about one
    failure: the code in fetch/ that raises the error sets them."""
    response: Any = None
    """FetchResponse (fetch/exchange.py) whose head came, with what is usable of its body. None: no whole head came."""

    def set_detail(self, detail: str) -> None:
        """Replace the detail, also in the message."""
        GossamerError.__init__(self, detail)


class BlockedAddress(FetchError):
    """The address is not on the public internet."""

    kind = "blocked_address"


class DnsFailed(FetchError):
    """The host name could not be resolved."""

    kind = "dns"
    denied = False
    """True: the name servers answered that there is no such name, or that it has no address. False: no answer came."""


class ConnectFailed(FetchError):
    """The server did not accept the connection."""

    kind = "connect"


class ConnectTimeout(FetchError):
    """The connection was not made in time."""

    kind = "connect_timeout"


class TlsFailed(FetchError):
    """The secure connection could not be established."""

    kind = "tls"
    wants_other_version = False
    """True: the server speaks none of the versions of HTTP that were offered."""


class ProxyFailed(FetchError):
    """The proxy could not be used."""

    kind = "proxy"

    def __init__(self, detail: str = "", *, for_target: bool = False, wait_seconds: float = 0.0) -> None:
        """`detail` must not have the proxy's address or password: it goes into records."""
        super().__init__(detail)
        self.for_target = for_target
        """True: the proxy works, but did not connect to this host."""
        self.wait_seconds = wait_seconds
        """Seconds until another proxy may be tried. 0: unknown."""


class FirstByteTimeout(FetchError):
    """The response did not begin in time."""

    kind = "first_byte_timeout"


class IdleTimeout(FetchError):
    """The response stopped in the middle."""

    kind = "idle_timeout"


class TotalTimeout(FetchError):
    """The whole response took too long."""

    kind = "total_timeout"


class NotSentInTime(FetchError):
    """The request was not sent in time.

    Its connection was ready only after the latest time at which it might be sent (`send_by` in policy/lateness.py).
    """

    kind = "not_sent_in_time"
    connecting = False
    """True: making the connection took too long. The connection is kept for the next request."""
    connect_seconds = 0.0
    """Time that making the connection took, without stalls of this process; 0: the request had a kept connection."""


class ConnectionLost(FetchError):
    """The connection ended before the response was complete."""

    kind = "connection_lost"
    repeatable = False
    """True: a reused connection was lost before the first byte of a response. The request may be sent again, which
    counts as another request of the domain's rate."""


class Http2Needed(FetchError):
    """The site seems to speak only HTTP/2."""

    kind = "http2_needed"

    def __init__(self, detail: str = "", *, is_sure: bool = True) -> None:
        """`is_sure` False: it has only ended a connection, for which there may be another cause."""
        super().__init__(detail)
        self.is_sure = is_sure


class BadResponse(FetchError):
    """The response is not HTTP."""

    kind = "bad_response"


class HeadersTooLarge(FetchError):
    """The headers of the response exceed the limit."""

    kind = "headers_too_large"


class DecodeFailed(FetchError):
    """The compression of the response is broken."""

    kind = "decode"


class DecodeBomb(FetchError):
    """The response expands beyond the limits of size or ratio."""

    kind = "decode_bomb"


# --- sessions: pages that need a login --------------------------------------------------------------------------------


class LoginFailed(GossamerError):
    """The login failed."""

    only_detail = True
    exit_code = 1  # pages may have been fetched before


class LoginUnanswered(FetchError):
    """The site does not answer the login at present."""

    kind = "login_unanswered"


# --- browsers: pages that a script builds -----------------------------------------------------------------------------


class BrowserMissing(GossamerError):
    """Pages cannot be rendered here."""

    only_detail = True

    def __init__(self, detail: str = "", *, was_sent: bool = False, why: str = "") -> None:
        super().__init__(detail)
        self.was_sent = was_sent
        """True: the page was requested all the same, because only its response told that it is to be rendered."""
        self.why = why
        """Reason why it is to be rendered, as `Payload.render` has it. Empty: its request says so."""


class BrowserBusy(BrowserMissing):
    """Too many pages wait for the browser."""


class BrowserError(FetchError):
    """The browser could not render the page."""

    kind = "browser"


class BrowserCrashed(BrowserError):
    """The browser, or the page in it, has crashed."""

    kind = "browser_crashed"


class BrowserHung(BrowserError):
    """The browser, or the page in it, does not answer."""

    kind = "browser_hung"


class BrowserNotStarted(BrowserError):
    """The browser did not start."""

    kind = "browser_not_started"


class DevToolsRefused(BrowserError):
    """The browser refused a command."""

    kind = "browser_refused"


# --- sinks: the outputs that pages are written to ---------------------------------------------------------------------


class SinkError(GossamerError):
    """The output could not be written."""


class IndexUnavailable(SinkError):
    """The database of the page index could not be read or written."""


class OutputClosed(SinkError):
    """The reader closed the output."""

    def __init__(self, detail: str = "", *, taken: int = 0) -> None:
        super().__init__(detail)
        self.taken = taken
        """Number of records of the refused batch, from its beginning, that the reader had taken."""


class SinkFull(SinkError):
    """The output has no room; the crawl waits until it has."""


# --- others -----------------------------------------------------------------------------------------------------------


class FetchRefused(GossamerError):
    """A crawl would not fetch this page."""

    def __init__(self, detail: str, reason: str) -> None:
        super().__init__(detail)
        self.reason = reason
        """Word that the record of a crawl would have: `robots`, `offsite`, `bad_redirect`, `too_many_redirects`."""


class NothingFetched(GossamerError):
    """No page could be fetched."""


class AlreadyFinished(GossamerError):
    """This crawl is already finished."""


class WorkerFailed(GossamerError):
    """The worker processes end as soon as they start."""

    exit_code = 4  # no input is wrong: the same command may succeed when the machine has memory or processes again


class FakeWebFailed(GossamerError):
    """The fake web did not start or cannot be read."""

    only_detail = True


class ScriptFailed(GossamerError):
    """The script failed on the page."""


class PageEnded(GossamerError):
    """The open page has ended."""
