"""Hosts that refuse many pages in a row are named, until they send pages again."""

import pytest

from gossamer.policy.refusal_rests import IN_A_ROW
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.refusals import (
    RefusingHosts,
    mostly_refused,
    refusals_text,
    refused_by_sites,
    refusing_lines,
)


def test_a_host_that_refuses_many_in_a_row_is_a_trouble_until_it_sends_a_page() -> None:
    told: list[str] = []
    troubles = Troubles(told.append)
    hosts = RefusingHosts(troubles)
    for _ in range(IN_A_ROW - 1):
        hosts.on_refusal("a.test", "refused_captcha")
    assert (told, hosts.shown()) == ([], {})
    hosts.on_refusal("a.test", "refused_captcha")
    hosts.on_refusal("b.test", "refused_denied")
    assert list(troubles.current) == ["refusals"]
    assert told[0].startswith("a.test has refused 10 pages in a row")
    assert "It rests for up to 80 s at a time" in told[0]
    assert hosts.shown() == {"a.test": IN_A_ROW}
    hosts.on_page("b.test")
    assert list(troubles.current) == ["refusals"]
    hosts.on_page("a.test")
    assert (list(troubles.current), hosts.in_a_row) == ([], {})


def test_a_page_between_refusals_begins_the_count_anew() -> None:
    hosts = RefusingHosts()
    for _ in range(3 * IN_A_ROW):
        for _ in range(IN_A_ROW - 1):
            hosts.on_refusal("a.test", "refused_denied")
        hosts.on_page("a.test")
    assert hosts.shown() == {}


def test_refusals_in_words() -> None:
    failed = {"refused_challenge": 3, "refused_login": 1, "http_404": 9}
    text = refusals_text(failed, fetched=2, pool="cli")
    assert text.startswith("refused by sites: 4 pages (challenge 3, login 1), and sent 2. Ask its operator")
    assert refusals_text({"http_404": 9}, fetched=0, pool="cli") == ""
    assert mostly_refused(failed, fetched=2)
    assert not mostly_refused(failed, fetched=3)
    assert not mostly_refused({"refused_login": 9}, fetched=3)
    hosts = {f"{count}.test": count for count in range(10, 15)}
    assert refusing_lines(hosts) == [
        "the last 14 of 14.test were all refused",
        "the last 13 of 13.test were all refused",
        "the last 12 of 12.test were all refused",
        "and so were those of 2 other hosts",
    ]


@pytest.mark.parametrize(
    ("pool", "logs_in", "renders"),
    [
        ("cli", "--session FILE logs in; --cookie sends", "--render auto lets"),
        (
            "shared",
            '"login": "NAME" (of a session file that gossamer logins put NAME FILE has stored)',
            '"render": "auto"',
        ),
        ("login:shop", '"login": "NAME" (of a session file that', '"render": "auto" lets'),
    ],
)
def test_advice_names_what_those_write_who_submit_the_crawl(pool: str, logs_in: str, renders: str) -> None:
    assert logs_in in refusals_text({"refused_login": 1}, fetched=2, pool=pool)
    assert renders in refusals_text({"refused_empty": 1}, fetched=2, pool=pool)
    troubles = Troubles()
    hosts = RefusingHosts(troubles, pool=pool)
    for _ in range(IN_A_ROW):
        hosts.on_refusal("a.test", "refused_login")
    assert logs_in in troubles.current["refusals"]


def test_pages_that_are_missing_or_empty_are_no_refusals_by_the_site() -> None:
    failed = {"refused_not_found": 9, "refused_empty": 4, "refused_same": 1}
    assert refused_by_sites(failed) == {"same": 1}
    assert not mostly_refused(failed, fetched=2)
    text = refusals_text({"refused_empty": 4}, fetched=2, pool="cli")
    assert text.startswith("4 responses without a page: The page is empty until scripts have built it.")
    told: list[str] = []
    hosts = RefusingHosts(Troubles(told.append))
    for _ in range(IN_A_ROW):
        hosts.on_refusal("old.test", "refused_not_found")
        hosts.on_refusal("shell.test", "refused_empty")
    assert hosts.shown() == {"shell.test": IN_A_ROW}
    assert told[0].startswith("shell.test has sent empty shells in place of 10 pages in a row")
    assert "rests" not in told[0]
