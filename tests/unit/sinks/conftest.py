"""Records to write: everything has a default, tests name what they mean."""

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.model.record import Output, PageRecord

MakePage = Callable[..., Output]


def _page(request_id: str = "r1", wires: tuple[Any, ...] = (), **fields: Any) -> Output:
    record = PageRecord(
        **{
            "appid": "app",
            "crawlid": "crawl",
            "spiderid": "link",
            "request_id": request_id,
            "attempt": 1,
            "depth": 0,
            "url": "https://a.test/",
            "response_url": "https://a.test/",
            "status_code": 200,
            "status_msg": "OK",
            "response_headers": {"Content-Type": ["text/html"]},
            "request_headers": {"User-Agent": ["t"]},
            "body": "<p>Grüße</p>",
            "body_encoding": "text",
            "encoding": "utf-8",
            "content_type": "text/html",
            "links": [],
            "attrs": None,
            "timestamp": "2026-01-02T03:04:05Z",
            "success": True,
            "reason": "",
            "exception": "",
            "redirects": [],
            "timings": {"total": 0.5},
            "ip": "192.0.2.1",
            "truncated": False,
            **fields,
        }
    )
    return Output(record=record, body=record.body.encode("utf-8", "replace"), wires=wires)


@pytest.fixture
def page() -> MakePage:
    return _page
