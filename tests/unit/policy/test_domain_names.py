"""One spelling of domains: whatever takes a name compares it with the hosts of canonical URLs (UTS 46)."""

import pytest

from gossamer.control.admission import RequestValidator
from gossamer.control.domains import load_policies, parse_domain
from gossamer.errors import BadInput
from gossamer.fetch.proxies import parse_proxy
from gossamer.model.crawl import Terms
from gossamer.model.messages.requests import CrawlRequest
from gossamer.net.names import domain_name
from gossamer.net.resolve import Resolver, parse_override
from gossamer.policy.scope import compile_scope
from gossamer.policy.secrets import SecretHeaders, with_secrets_for
from gossamer.policy.urls import canonical, host, registered_domain
from gossamer.settings import load
from gossamer.wiring.plan import make_plan

NAMES = [
    "straße.test", "STRASSE.test", "βόλος.test", "ΒΌΛΟΣ.test", "bücher.test", "bu\u0308cher.test", "Bücher.Test.",
    "نامه\u200cای.test", "क्\u200dष.test", "ＡＢＣ.test", "a。test", "ﬁ.test", "faß.co.uk", "xn--fa-hia.test",
    "a_b.test", "ex%41mple.test", "café.test", "a\u00adb.test",
]  # fmt: skip
"""Names whose spelling IDNA 2003 and UTS 46 disagree about, and some that they agree about."""


def of_url(name: str) -> str:
    return host(canonical(f"http://{name}/")).removesuffix(".")


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_stored_where_requests_for_the_domain_look_for_it(name: str) -> None:
    domain = registered_domain(of_url(name))
    assert parse_domain(name) == domain
    _, policies = load_policies(f"domains:\n  '{name}': {{hits: 3}}\nblacklist: ['{name}']\n")
    assert list(policies) == [domain]


@pytest.mark.parametrize("name", NAMES)
async def test_an_override_is_found(name: str) -> None:
    asked: list[str] = []

    async def lookup(asked_name: str) -> list[str]:
        asked.append(asked_name)
        raise OSError("no such name")

    for text, wanted in ((name, of_url(name)), (f"*.{name}", f"www.{of_url(name)}")):
        for overrides in (dict([parse_override(f"{text}:127.0.0.7")]), {text: "127.0.0.7"}):
            assert await Resolver(overrides=overrides, lookup=lookup).addresses(wanted, 80) == ("127.0.0.7",)
    assert not asked


@pytest.mark.parametrize("text", ["a b.test", "a*.test", "*.*", "*.", "**", "a/b", "a?b", "a.*", "*.a.*.test", "%"])
def test_an_override_that_no_host_can_match_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a host name"):
        parse_override(f"{text}:127.0.0.1")
    with pytest.raises(BadInput, match="is not a host name"):
        Resolver(overrides={text: "127.0.0.1"})


@pytest.mark.parametrize("name", NAMES)
def test_the_terms_of_a_crawl_have_the_spelling_of_urls(name: str) -> None:
    spelled = of_url(name)
    settings = load({"crawl.allow_domain": (name,), "crawl.cookie": "a=1", "crawl.headers_for": (name,)})
    planned = make_plan(settings, ["http://seed.test/"], crawl_id=None, now=0.0).terms
    validator = RequestValidator(now=lambda: 0.0)
    request = CrawlRequest(
        appid="app", crawlid="c", url="http://seed.test/", maxdepth=1, allowed_domains=(name,), cookie="a=1",
        headers_for=(name,),
    )  # fmt: skip
    for terms in (planned, validator.admit(request).terms):
        assert spelled in (terms.allowed_domains or ())
        assert SecretHeaders(terms).may_go_to(f"http://{spelled}/")
    assert compile_scope(allowed_domains=[name], allowed_hosts=[name]).reason(f"http://{spelled}/x") is None
    assert spelled in with_secrets_for(Terms(cookie="a=1"), (), [name]).secrets_for
    assert domain_name(name) == spelled


@pytest.mark.parametrize("name", [name for name in NAMES if not name.isascii()])
def test_a_proxy_is_looked_up_by_its_ascii_name(name: str) -> None:
    assert parse_proxy(f"http://{name}:3128").host == of_url(name)
