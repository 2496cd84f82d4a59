from collections.abc import AsyncIterator, Iterator

from scrapy import FormRequest, Request, Spider
from scrapy.http import TextResponse

from properties.items import Property
from properties.loaders import load
from properties.site import at


class LoginSpider(Spider):
    """Posts the form at once. `-a password=...` tries another one."""

    name = "login"
    user = "user"
    password = "pass"  # noqa: S105 - the site's own, printed in its documentation

    async def start(self) -> AsyncIterator[Request]:
        yield FormRequest(at("/dynamic/login"), formdata={"user": self.user, "pass": self.password})

    def parse(self, response: TextResponse) -> Iterator[Request]:
        """The gated page, or the one that says no and has no links."""
        for link in response.xpath('//*[@itemprop="url"]/@href').getall():
            yield response.follow(link, self.parse_property)

    def parse_property(self, response: TextResponse) -> Property:
        return load(self, response)
