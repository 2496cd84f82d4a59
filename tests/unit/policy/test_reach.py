"""Whether one submission's terms follow every link that another's do."""

import pytest

from gossamer.model.crawl import Terms
from gossamer.policy.scope import covers

ANY = Terms()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ANY, ANY, True),
        (ANY, Terms(maxdepth=7, allowed_domains=("a.test",), allow_regex=("x",), deny_regex=("y",)), True),
        (Terms(maxdepth=2), Terms(maxdepth=2), True),
        (Terms(maxdepth=2), Terms(maxdepth=1), True),
        (Terms(maxdepth=2), Terms(maxdepth=3), False),
        (Terms(maxdepth=2), ANY, False),
        (Terms(maxdepth=0, allowed_domains=("a.test",)), Terms(maxdepth=0), True),
        (Terms(allowed_domains=("a.test",)), Terms(allowed_domains=("a.test",)), True),
        (Terms(allowed_domains=("a.test",)), Terms(allowed_domains=("www.a.test",)), True),
        (Terms(allowed_domains=("a.test",)), Terms(allowed_domains=("ba.test",)), False),
        (Terms(allowed_domains=("a.test",)), Terms(allowed_domains=("a.test", "b.test")), False),
        (Terms(allowed_domains=("a.test",)), ANY, False),
        (Terms(allow_regex=("x", "y")), Terms(allow_regex=("y",)), True),
        (Terms(allow_regex=("x",)), Terms(allow_regex=("x", "y")), False),
        (Terms(allow_regex=("x",)), ANY, False),
        (Terms(deny_regex=("x",)), Terms(deny_regex=("x", "y")), True),
        (Terms(deny_regex=("x", "y")), Terms(deny_regex=("x",)), False),
        (ANY, Terms(deny_extensions=("pdf",)), False),
        (Terms(deny_extensions=("pdf",)), ANY, True),
        (Terms(deny_extensions=(".PDF",)), Terms(deny_extensions=("pdf", "zip")), True),
        (Terms(allowed_hosts=("a.test",)), Terms(allowed_hosts=("b.test",)), False),
        (Terms(allowed_prefixes=("http://a.test/x/",)), Terms(allowed_prefixes=("http://a.test/",)), False),
        (ANY, Terms(allowed_hosts=("a.test",)), False),
        (Terms(allowed_hosts=("a.test",)), Terms(allowed_hosts=("a.test",)), True),
        (Terms(allowed_hosts=("a.test",)), ANY, False),
        (Terms(allowed_hosts=("a.test",)), Terms(allowed_hosts=("a.test",), allowed_domains=("b.test",)), False),
        (Terms(allowed_hosts=("a.test",), allowed_domains=("b.test",)), Terms(allowed_hosts=("a.test",)), True),
        (
            Terms(allowed_prefixes=("http://a.test/x/",)),
            Terms(allowed_prefixes=("http://a.test/x/",), allowed_domains=("b.test",)),
            False,
        ),
        (ANY, Terms(follow_nofollow=True), False),
        (ANY, Terms(sitemaps=True), False),
        (Terms(sitemaps=True, follow_nofollow=True), ANY, True),
        (ANY, Terms(attrs={"ticket": 1}, useragent="x", expires=5.0), True),
    ],
)
def test_what_is_followed(old: Terms, new: Terms, expected: bool) -> None:
    assert covers(old, new) is expected
