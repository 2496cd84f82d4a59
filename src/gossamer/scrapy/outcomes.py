"""What a download's end means for its request."""

from collections.abc import Collection

from scrapy import Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from gossamer.model.outcome import Dropped, Outcome
from gossamer.scrapy.live import Live

_ROBOTS = "robots.txt"


class Outcomes:
    """The rules of one spider: which answers are pages is for HttpErrorMiddleware to say."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._all = settings.getbool("HTTPERROR_ALLOW_ALL")
        codes = getattr(spider, "handle_httpstatus_list", None) or settings.getlist("HTTPERROR_ALLOWED_CODES")
        self._codes: Collection[int] = frozenset(int(code) for code in codes)

    def judge(self, live: Live, result: object) -> None:
        """Note what the answer, or its absence, makes of the request."""
        if isinstance(result, Failure):
            self._failed(live, result)
        elif isinstance(result, Response) and not self._is_page(live, result.status):
            live.fail(f"http_{result.status}")

    def _failed(self, live: Live, failure: Failure) -> None:
        fault = failure.value
        if isinstance(fault, HttpError):
            live.fail(f"http_{fault.response.status}")
        elif isinstance(fault, IgnoreRequest):
            robots = _ROBOTS in str(fault)
            live.outcome, live.reason = Outcome.DROPPED, str(Dropped.ROBOTS if robots else Dropped.FILTERED)
        else:
            live.fail(type(fault).__name__)

    def _is_page(self, live: Live, status: int) -> bool:
        if 200 <= status < 300 or self._all:
            return True
        meta = live.request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        codes = meta.get("handle_httpstatus_list", self._codes)
        try:
            return status in codes
        except TypeError:
            return False
