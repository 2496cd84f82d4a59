"""A session at a site: which requests get what a login has given."""

from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.session.session_file import Account, LoggedOutSigns, LoginSteps, SiteLogin
from gossamer.session.site_session import SiteSession


async def send_nothing(request: FetchRequest) -> FetchResponse:
    """Basic auth logs in without a request."""
    raise AssertionError(request.url)


async def test_a_password_that_went_over_tls_does_not_go_without() -> None:
    """A site that is only there without TLS gets it all the same."""
    account = Account("me", {"user": "me", "password": "secret"})
    login = SiteLogin("shop.test", (account,), LoginSteps(basic=True), LoggedOutSigns(), (), "site")
    session = SiteSession("shop.test", None, login, account)
    await session.prepare(FetchRequest, send_nothing)
    urls = ("http://shop.test/1", "https://www.shop.test/2", "http://shop.test/3", "https://shop.test/4")
    requests = [FetchRequest(url) for url in (*urls, "https://other.test/")]
    for request in requests:
        session.add_to(request)
    carried = [any(name == "Authorization" for name, _ in request.headers) for request in requests]
    assert carried == [True, True, False, True, False]
