"""What went wrong with a download, in the words that the fast worker has for it."""

from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from twisted.python.failure import Failure

_KINDS = {
    "CannotResolveHostError": "dns",
    "DNSLookupError": "dns",
    "DownloadConnectionRefusedError": "connect",
    "DownloadTimeoutError": "total_timeout",
    "TimeoutError": "total_timeout",
    "TCPTimedOutError": "connect_timeout",
    "ConnectError": "connect",
    "ResponseDataLossError": "connection_lost",
    "ResponseFailed": "connection_lost",
    "ConnectionLost": "connection_lost",
    "ConnectionDone": "connection_lost",
    "TunnelError": "proxy",
    "DownloadFailedError": "fetch",
}
"""By the class or the nearest of its bases, whose names differ between versions of Scrapy and its handlers."""


def kind_of(result: object) -> str | int | None:
    """The word for a failed download, the status of an answer; None: neither."""
    if isinstance(result, Response):
        return result.status
    if not isinstance(result, Failure) or isinstance(result.value, IgnoreRequest):
        return None
    return next((_KINDS[kind.__name__] for kind in type(result.value).__mro__ if kind.__name__ in _KINDS), None)
