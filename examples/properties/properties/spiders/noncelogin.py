from collections.abc import AsyncIterator

from scrapy import FormRequest, Request
from scrapy.http import TextResponse

from properties.site import at
from properties.spiders.login import LoginSpider


class NonceLoginSpider(LoginSpider):
    """Fills the form of the page, hidden fields included."""

    name = "noncelogin"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(at("/dynamic/nonce"), self.parse_form)

    def parse_form(self, response: TextResponse) -> Request:
        """Return the filled form."""
        (form,) = response.xpath("//form")
        hidden = {field.attrib["name"]: field.attrib["value"] for field in form.xpath('.//input[@type="hidden"]')}
        return FormRequest(
            response.urljoin(form.attrib["action"]), formdata={**hidden, "user": self.user, "pass": self.password}
        )
