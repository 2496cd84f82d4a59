"""Validators: what is kept of a response, and that it is sent back exactly as it was received."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fresh.validators import conditional_headers, date_text, packed_date, validators


@given(st.integers(1, 250_000_000_000))
def test_a_date_in_the_usual_form_is_a_number(moment: int) -> None:
    assert packed_date(date_text(moment)) == moment


@given(st.text())
def test_any_text_comes_back_as_it_was(value: str) -> None:
    assert date_text(packed_date(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "Tue, 03 Nov 2026 10:00:00 GMT",
        "Mon, 03 Nov 2026 10:00:00 GMT",  # the wrong day: only as a text does it come back
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Tue, 31 Feb 2026 10:00:00 GMT",
        "2026-11-03T10:00:00Z",
        "0",
    ],
)
def test_dates_of_all_kinds_come_back(text: str) -> None:
    assert date_text(packed_date(text)) == text


def test_weak_tags_are_sent_as_they_came() -> None:
    etag, modified = validators({"ETag": ['W/"1-a"'], "last-modified": ["Tue, 03 Nov 2026 10:00:00 GMT"]})
    assert conditional_headers(etag, packed_date(modified)) == {
        "If-None-Match": 'W/"1-a"',
        "If-Modified-Since": "Tue, 03 Nov 2026 10:00:00 GMT",
    }


@pytest.mark.parametrize("headers", [{}, {"ETag": ["a", "b"]}, {"ETag": ["x" * 300]}, {"ETag": ["a\nb"]}])
def test_no_validator_or_one_that_is_no_use_is_not_sent(headers: dict[str, list[str]]) -> None:
    etag, modified = validators(headers)
    assert conditional_headers(etag, packed_date(modified)) == {}
