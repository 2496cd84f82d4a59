"""The result of a request to a blacklisted domain keeps what the frontier said."""

from gossamer.control.admission import DUPLICATE, JOINED, SubmitResult
from gossamer.control.dispatcher import _with_blacklist
from gossamer.model.crawl import WhenBlacklisted


def test_a_request_that_joined_a_run_keeps_its_reason() -> None:
    assert _with_blacklist(SubmitResult(True, JOINED), WhenBlacklisted.HELD) == SubmitResult(
        True, JOINED, blacklisted="held"
    )
    assert _with_blacklist(SubmitResult(True), None) == SubmitResult(True)
    assert _with_blacklist(SubmitResult(False, DUPLICATE), WhenBlacklisted.HELD) == SubmitResult(False, DUPLICATE)
