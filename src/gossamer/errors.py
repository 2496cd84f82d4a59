"""Every error Gossamer raises on purpose. A class's docstring is the message a person reads; details follow a colon."""

from typing import ClassVar


class GossamerError(Exception):
    """Gossamer could not go on."""

    only_detail: ClassVar[bool] = False
    """The details are the whole message: they name the value and what to do."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        if detail and self.only_detail:
            super().__init__(detail)
            return
        message = (type(self).__doc__ or "").strip().splitlines()[0].removesuffix(".")
        super().__init__(f"{message}: {detail}" if detail else f"{message}.")


class BadInput(GossamerError):
    """This cannot be used."""

    only_detail = True


class BadSetting(BadInput, ValueError):
    """This cannot be used."""


class BadSpider(BadInput):
    """This cannot be used."""


class BadUrl(BadInput):
    """This is not an http or https URL."""

    only_detail = False
    reason = "bad_url"
    """Stable word for counters: why a link with such an address is dropped. Subclasses have their own."""


class BadScheme(BadUrl):
    """Only http and https are crawled."""

    reason = "scheme"


class UrlTooLong(BadUrl):
    """This URL is too long."""

    reason = "too_long"


class Interrupted(GossamerError):
    """Interrupted."""


# --- the frontier -----------------------------------------------------------------------------------------------------


class FrontierError(GossamerError):
    """The frontier could not do this."""


class FrontierUnavailable(FrontierError):
    """The frontier could not be reached.

    Nobody knows whether the call was carried out; it may be repeated.
    """


class FrontierForgot(FrontierUnavailable):
    """The frontier may have forgotten what it confirmed before a connection was lost."""


class FrontierFull(FrontierError):
    """The frontier's server is out of memory; adding is refused, finishing what is there is not."""


class FrontierIncompatible(FrontierError):
    """This frontier was written by another version of Gossamer."""


class FrontierBusy(FrontierError):
    """The frontier in this data directory is in use by another running crawl or service."""


class CrawlRefused(FrontierError):
    """This crawl takes no more requests."""


class LeaseLost(FrontierError):
    """This request is no longer leased to this worker; another one gets it."""


class ServerUnsuitable(FrontierError):
    """The frontier's server cannot be used as it is."""


class ServerMissing(GossamerError):
    """No Valkey or Redis server was found to run."""


class ServerFailed(FrontierUnavailable):
    """The frontier's own server did not start."""


class PoliciesChanged(FrontierError):
    """Somebody else changed the domain policies meanwhile; load them again and repeat the edit."""


# --- the bus ----------------------------------------------------------------------------------------------------------


class BusError(GossamerError):
    """The bus could not do this."""


class BusUnavailable(BusError):
    """The bus could not be reached.

    Nobody knows whether the call was carried out; it may be repeated.
    """


class BusFull(BusError):
    """The topic is full of messages that nobody has acknowledged; publishing is refused until some are."""


class MessageTooLarge(BusError):
    """The message is larger than the bus takes."""


class RequestRejected(BadInput):
    """This request is not valid."""

    only_detail = False

    def __init__(self, reason: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        """The faulty field, dotted; empty: the message as a whole."""
        self.reason = reason


# --- fetching ---------------------------------------------------------------------------------------------------------


class FetchError(GossamerError):
    """The page could not be fetched."""

    kind = "fetch"
    """Stable word for records, counters and the retry table. Every subclass has its own."""


class BlockedAddress(FetchError):
    """The address is not on the public internet; --allow-private permits it."""

    kind = "blocked_address"


class DnsFailed(FetchError):
    """The host name could not be resolved."""

    kind = "dns"


class ConnectFailed(FetchError):
    """The connection was not accepted."""

    kind = "connect"


class ConnectTimeout(FetchError):
    """The connection took too long."""

    kind = "connect_timeout"


class TlsFailed(FetchError):
    """The secure connection could not be established."""

    kind = "tls"


class ProxyFailed(FetchError):
    """The proxy could not be used."""

    kind = "proxy"


class FirstByteTimeout(FetchError):
    """No answer began in time."""

    kind = "first_byte_timeout"


class IdleTimeout(FetchError):
    """The answer stopped in the middle."""

    kind = "idle_timeout"


class TotalTimeout(FetchError):
    """The whole answer took too long."""

    kind = "total_timeout"


class NotSentInTime(FetchError):
    """When a connection was there the time to send the request was over."""

    kind = "not_sent_in_time"
    connecting = False
    """It was the making of the connection that took so long; it is kept for the next request."""


class ConnectionLost(FetchError):
    """The connection ended before the answer did."""

    kind = "connection_lost"
    repeatable = False
    """A kept connection was lost before the first byte of an answer: the request may go again, under another hit."""


class BadResponse(FetchError):
    """The answer is not HTTP."""

    kind = "bad_response"


class HeadersTooLarge(FetchError):
    """The answer's headers exceed the limit."""

    kind = "headers_too_large"


class DecodeFailed(FetchError):
    """The answer's content encoding is broken."""

    kind = "decode"


class DecodeBomb(FetchError):
    """The answer expands beyond the limits of size or ratio."""

    kind = "decode_bomb"


# --- sinks ------------------------------------------------------------------------------------------------------------


class SinkError(GossamerError):
    """The output could not be written."""


class OutputClosed(SinkError):
    """Nobody reads the output any more."""


class SinkFull(SinkError):
    """The output has no room; crawling waits until there is."""


class IllegalTransition(GossamerError):
    """A request cannot go from this state by this event."""


class WorkerFailed(GossamerError):
    """The worker processes die as soon as they start."""


class FakeWebFailed(GossamerError):
    """The fake web did not start or cannot be read."""
