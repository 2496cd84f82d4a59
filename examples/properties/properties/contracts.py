"""Contracts that Scrapy does not have."""

from typing import Any

from scrapy.contracts import Contract

from properties.site import at


class PageContract(Contract):
    """`@page /path`: the page to check a callback with, wherever the site is."""

    name = "page"

    def adjust_request_args(self, args: dict[str, Any]) -> dict[str, Any]:
        args["url"] = at(self.args[0])
        return args
