"""The page at /docs needs nobody but the API itself."""

import re
from html.parser import HTMLParser

from .conftest import Service, in_session


class Links(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]


@in_session
async def test_all_that_the_page_loads_comes_from_the_api(shared: Service) -> None:
    page = await shared.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "http" not in policy
    links = Links()
    links.feed(page.text)
    assert len(links.found) == 4
    for link in links.found:
        assert "//" not in link
        assert (await shared.http.get(f"/{link}")).status_code == 200
    start = (await shared.http.get("/docs/start.js")).text
    [description] = re.findall(r'url: "(.*?)"', start)
    assert (await shared.http.get(f"/{description}")).json()["info"]["title"] == "Gossamer"


@in_session
async def test_nothing_else_of_the_package_is_served(shared: Service) -> None:
    for name in ("__init__.py", "..%2Fmain.py", "%2e%2e/main.py"):
        assert (await shared.http.get(f"/docs/{name}")).status_code == 404
