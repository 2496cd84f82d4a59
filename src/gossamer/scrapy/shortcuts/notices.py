"""Sends signals and log lines of the engine, and of connections. What has no receiver costs little.

Fixed: receivers get the arguments that Scrapy gives them, in the same order; errors of receivers are logged as Scrapy
logs them; and a log line that no handler shows is counted where Scrapy counts it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from pydispatch.dispatcher import Any as AnySender  # type: ignore[import-untyped]
from pydispatch.dispatcher import connections, getAllReceivers, liveReceivers
from pydispatch.robustapply import robustApply  # type: ignore[import-untyped]
from scrapy.exceptions import StopDownload
from scrapy.logformatter import LogFormatter
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.log import LogCounterHandler, logformatter_adapter
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.scrapy.shortcuts.parts import counter_of

if TYPE_CHECKING:
    from twisted.internet.ssl import Certificate

_log = logging.getLogger("scrapy.utils.signal")  # the name that users know from Scrapy's lines
_ANY: Final = id(AnySender)
_TAKES_ALL: Final = 8
"""Flag of code with a `**` parameter (`inspect.CO_VARKEYWORDS`)."""


class Signals:
    """Sends the signals of one crawler."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._sender_id = id(sender)

    def receivers(self, signal: Any) -> list[Any]:
        """Return the live receivers of a signal, as pydispatch finds them."""
        of_sender = connections.get(self._sender_id)
        if _ANY not in connections and (of_sender is None or AnySender not in of_sender):
            found = of_sender.get(signal) if of_sender is not None else None
            return list(liveReceivers(tuple(found))) if found else []
        return list(liveReceivers(getAllReceivers(self._sender, signal)))

    def send(self, signal: Any, *, dont_log: tuple[type[Exception], ...] = (), **named: Any) -> list[tuple[Any, Any]]:
        """Do what `SignalManager.send_catch_log` does. Return the receivers, each with its result or a Failure."""
        receivers = self.receivers(signal)
        if not receivers:
            return []
        spider = named.get("spider")
        expected: tuple[type[Exception], ...] = (*dont_log, StopDownload)
        named["signal"], named["sender"] = signal, self._sender
        results: list[tuple[Any, Any]] = []
        for receiver in receivers:
            try:
                result = _apply(receiver, named)
                if isinstance(result, Deferred):
                    _log.error(
                        "Cannot return deferreds from signal handler: %(receiver)s",
                        {"receiver": receiver},
                        extra={"spider": spider},
                    )
            except expected:
                result = Failure()  # type: ignore[no-untyped-call]
            except Exception:
                result = Failure()  # type: ignore[no-untyped-call]
                _log_error(receiver, spider)
            results.append((receiver, result))
        return results

    def send_to_all(self, signal: Any, **named: Any) -> Awaitable[Any] | None:
        """Do what `SignalManager.send_catch_log_async` does. None: all receivers have ended. Otherwise await the
        result, with which the last one ends."""
        receivers = self.receivers(signal)
        if not receivers:
            return None
        spider = named.get("spider")
        named["signal"], named["sender"] = signal, self._sender
        pending: list[Awaitable[Any]] = []
        for receiver in receivers:
            try:
                result = _apply(receiver, named)
            except Exception:
                _log_error(receiver, spider)
                continue
            if isinstance(result, Deferred):
                pending.append(_wait(receiver, ensure_awaitable(result, _warn=global_object_name(receiver)), spider))
            elif inspect.isawaitable(result):
                pending.append(_wait(receiver, result, spider))
        return asyncio.gather(*pending) if pending else None


async def _wait(receiver: Any, result: Awaitable[Any], spider: Any) -> None:
    """Wait for an asynchronous receiver."""
    try:
        await result
    except Exception:
        _log_error(receiver, spider)


def _log_error(receiver: Any, spider: Any) -> None:
    _log.error(
        "Error caught on signal handler: %(receiver)s", {"receiver": receiver}, exc_info=True, extra={"spider": spider}
    )


def _apply(receiver: Any, named: dict[str, Any]) -> Any:
    """Call a receiver with those arguments that it takes, as pydispatch does."""
    if type(receiver) is MethodType and type(receiver.__func__) is FunctionType:
        names = _accepted(receiver.__func__.__code__, 1)
    elif type(receiver) is FunctionType:
        names = _accepted(receiver.__code__, 0)
    else:
        return robustApply(receiver, **named)
    if names is None:
        return receiver(**named)
    return receiver(**{name: named[name] for name in names if name in named})


@lru_cache(maxsize=256)  # one for each receiver
def _accepted(code: CodeType, first: int) -> tuple[str, ...] | None:
    """Return the names of a function's parameters from this position on. None: it takes all names."""
    return None if code.co_flags & _TAKES_ALL else code.co_varnames[first : code.co_argcount]


class LogLines:
    """Writes the log lines about pages and items."""

    def __init__(self, crawler: Any, formatter: LogFormatter) -> None:
        self._crawler = crawler
        self._inc_value = counter_of(crawler.stats)
        self._formatter = formatter
        kind = type(formatter)
        own = vars(formatter)
        self._has_stock_crawled = kind.crawled is LogFormatter.crawled and "crawled" not in own
        self._has_stock_scraped = kind.scraped is LogFormatter.scraped and "scraped" not in own
        self._engine = logging.getLogger("scrapy.core.engine")
        self._scraper = logging.getLogger("scrapy.core.scraper")

    def crawled(self, request: Any, response: Any, spider: Any) -> None:
        """Log a response."""
        if self._has_stock_crawled and self._hides(self._engine):
            return
        line = self._formatter.crawled(request, response, spider)
        if line is not None:
            self._engine.log(*logformatter_adapter(line), extra={"spider": spider})

    def scraped(self, item: Any, response: Any, spider: Any, extra: Callable[[Any], dict[str, Any]]) -> None:
        """Log an item that has passed the pipelines. `extra` returns further attributes of the line."""
        if self._has_stock_scraped and self._hides(self._scraper):
            return
        line = self._formatter.scraped(item, response, spider)
        if line is not None:
            self._scraper.log(*logformatter_adapter(line), extra=extra(item))

    def _hides(self, logger: logging.Logger) -> bool:
        """Return whether nothing would show or see a debug line; if so, count it as Scrapy counts it."""
        counters = hidden_counters(logger)
        if counters is None:
            return False
        for counter in counters:
            if counter.crawler is self._crawler:
                self._inc_value(_DEBUG_STAT)
            else:  # another crawl of this process
                counter.crawler.stats.inc_value(_DEBUG_STAT)
        return True


_DEBUG_STAT: Final = "log_count/DEBUG"


def hidden_counters(logger: logging.Logger) -> list[LogCounterHandler] | None:
    """Return what would count a debug line that nothing else would show or see. None: it would be shown, or seen."""
    if not logger.isEnabledFor(logging.DEBUG):
        return []
    if type(logger) is not logging.Logger or logger.filters or _makes_own_records():
        return None
    counters: list[LogCounterHandler] = []
    for handler in _handlers(logger):
        kind = type(handler)
        if kind is logging.NullHandler or handler.level > logging.DEBUG:
            continue
        if kind is not LogCounterHandler or handler.filters:
            return None
        counters.append(handler)  # type: ignore[arg-type]
    return counters


def _makes_own_records() -> bool:
    return logging.getLogRecordFactory() is not logging.LogRecord or logging.getLevelName(logging.DEBUG) != "DEBUG"


def _handlers(logger: logging.Logger) -> Iterable[logging.Handler]:
    """Yield the handlers that get the lines of a logger."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


# --- connections ------------------------------------------------------------------------------------------------------

_tls_log = logging.getLogger("scrapy.core.downloader.tls")


@lru_cache(maxsize=1024)  # one for each server that is crawled at a time
def certificate(der: bytes) -> "Certificate":
    """Return the certificate of a server."""
    from OpenSSL.crypto import FILETYPE_ASN1
    from twisted.internet.ssl import Certificate

    return Certificate.load(der, FILETYPE_ASN1)


def warn_of_hostname(der: bytes, host: str) -> None:
    """Log the warning that Scrapy logs where the certificate of a server is for another host: once a connection."""
    if (fault := _hostname_fault(der, host)) is not None:
        _tls_log.warning('Remote certificate is not valid for hostname "%s"; %s', host, fault)


@lru_cache(maxsize=1024)  # one for each host that is crawled at a time
def _hostname_fault(der: bytes, host: str) -> str | None:
    """Return why a certificate is not for this host. None: it is."""
    from service_identity import CertificateError, VerificationError
    from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
    from service_identity.pyopenssl import extract_patterns

    try:
        identity: Any = IPAddress_ID(host)
    except ValueError:
        identity = DNS_ID(host)
    try:
        verify_service_identity(extract_patterns(certificate(der).original), [identity], [])
    except (CertificateError, VerificationError) as error:
        return str(error)
    return None
