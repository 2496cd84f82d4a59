"""Pipelines of this project: a call that blocks, in threads, and a computation, in processes."""

import socket
from typing import Any
from urllib.parse import urlsplit

from scrapy.crawler import Crawler

from gossamer.scrapy.pipelines import ProcessPipeline, ThreadPipeline


class SiteAddressPipeline(ThreadPipeline):
    """Puts the IP address of the property's site into `ip`. The system's resolver blocks its caller."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._known: dict[str, str] = {}

    def work(self, item: Any) -> Any:
        if "url" in item:
            host = urlsplit(item["url"]).hostname or ""
            with self.lock:  # the threads share the answers
                if host not in self._known:
                    self._known[host] = socket.gethostbyname(host)
            item["ip"] = self._known[host]
        return item


class WordsPipeline(ProcessPipeline):
    """Counts the words of the description. It stands for a computation that takes long."""

    @staticmethod
    def compute(item: Any) -> Any:
        if "description" in item:
            item["words"] = len(item["description"].split())
        return item
