"""Every reason has words, and the words for an error are those of the error itself."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import gossamer.worker
from gossamer.errors import BadUrl, FetchError, HeadersTooLarge, NotSentInTime
from gossamer.model.record import RefusalKind
from gossamer.model.request import DropReason
from gossamer.policy.retry import REFUSED, WORTH_A_RETRY
from gossamer.policy.words import explain, fetch_error
from gossamer.worker.drops import drop_reason


def family(base: type) -> Iterator[type]:
    """The class, and all that are derived from it."""
    yield base
    for derived in base.__subclasses__():
        yield from family(derived)


def own_errors(base: type) -> list[type]:
    """Those of the package: tests derive some, too."""
    return [one for one in family(base) if one.__module__ == "gossamer.errors"]


def reasons_in_code() -> set[str]:
    """The words with which workers let requests fail."""
    found: set[str] = set()
    for path in Path(gossamer.worker.__file__).parent.rglob("*.py"):
        found.update(re.findall(r'(?:_fail\(attempt,|Outcome\.FAILED,) "(\w+)"', path.read_text()))
    return found


def test_the_reasons_of_the_worker_are_found() -> None:
    assert {"bad_request", "redirect_loop", "robots_unreachable", "spider_error"} <= reasons_in_code()


def all_reasons() -> set[str]:
    kinds = [error.kind for error in own_errors(FetchError)]  # type: ignore[attr-defined]
    urls = [drop_reason(error.reason) for error in own_errors(BadUrl)]  # type: ignore[attr-defined]
    kept = [kind for kind in WORTH_A_RETRY if isinstance(kind, str)]
    others = ["bad_entry", "wrong_type", "too_large"]  # they are set elsewhere: by the decoding, and by assets
    refused = [f"{REFUSED}{kind}" for kind in get_args(RefusalKind)]
    return {*kinds, *urls, *kept, *others, *refused, *reasons_in_code(), *DropReason}


@pytest.mark.parametrize("reason", sorted(all_reasons()))
def test_every_reason_has_words(reason: str) -> None:
    assert explain(reason).title != reason


def test_a_page_that_an_account_may_not_see_has_not_always_had_a_new_login() -> None:
    """Basic auth sends user and password with each page, so there is nothing to renew."""
    assert "new login" not in explain("logged_out").title


def test_a_status_has_the_words_of_its_standard() -> None:
    assert explain("http_404").title == "404 Not Found"
    assert explain("http_999").title == "999"


@pytest.mark.parametrize("error", own_errors(FetchError), ids=lambda error: error.__name__)
def test_the_title_of_an_error_is_its_message(error: type[FetchError]) -> None:
    """Otherwise a person reads nearly the same words twice."""
    assert str(error()) == f"{explain(error.kind).title}."
    assert str(error("x")) == f"{explain(error.kind).title}: x"
    sentence = fetch_error("http://a.test/", error.kind, str(error("more")))
    assert sentence.lower().count(explain(error.kind).title.lower()) == 1
    assert "(more)." in sentence


def test_an_error_without_details_is_told_once() -> None:
    told = fetch_error("http://a.test/", NotSentInTime.kind, str(NotSentInTime()))
    assert told == "Cannot fetch http://a.test/: the request was not sent in time."


def test_details_with_colons_stay_whole() -> None:
    told = fetch_error("http://a.test/", HeadersTooLarge.kind, str(HeadersTooLarge("gzip: wrong: 5")))
    assert told == "Cannot fetch http://a.test/: the headers of the response exceed the limit (gzip: wrong: 5)."
