"""Messages to the historian, on the topic `history`: the ends of runs, and examples of failed requests.

A message may be published twice; `event_id` and `request_id` name what it is about. Fields may be added with a default.
"""

import msgspec

from gossamer.model.crawl import CrawlEvent, CrawlId
from gossamer.model.json_codec import encode_value


class CrawlEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """End of a run, or of one spider's part of it. The fields are those of `CrawlEvent`."""

    event_id: str
    kind: str
    appid: str
    crawlid: str
    run: int
    spider: str = ""
    at: float
    purged: int = 0

    @property
    def crawl(self) -> CrawlId:
        """The crawl."""
        return CrawlId(self.appid, self.crawlid)


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A request that failed for good. Not every one is published: some of each reason are."""

    appid: str
    crawlid: str
    spider: str
    request_id: str
    url: str
    status: int
    reason: str
    error: str
    at: float

    @property
    def crawl(self) -> CrawlId:
        """The crawl."""
        return CrawlId(self.appid, self.crawlid)


_decoder: msgspec.json.Decoder[CrawlEnded | RequestFailed] = msgspec.json.Decoder(CrawlEnded | RequestFailed)


def ended_message(event: CrawlEvent) -> bytes:
    """Return the message for the end of a run."""
    return encode_value(
        CrawlEnded(
            event_id=event.event_id,
            kind=event.kind.value,
            appid=event.crawl.appid,
            crawlid=event.crawl.crawlid,
            run=event.run,
            spider=event.spider,
            at=event.at,
            purged=event.purged,
        )
    )


def read_message(value: bytes) -> CrawlEnded | RequestFailed | None:
    """Return a message. None: another program published it, or a newer version of this one."""
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
