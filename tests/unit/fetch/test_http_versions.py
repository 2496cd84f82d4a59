"""The choice between HTTP/1.1 and HTTP/2 for an origin."""

import subprocess
import sys

import pytest

from gossamer.errors import BadInput, Http2Needed
from gossamer.fetch import http_versions
from gossamer.fetch.http_versions import HttpVersions, check_wish

DAY = 24 * 3600.0


@pytest.mark.parametrize(("wish", "offered"), [("never", False), ("auto", False), ("prefer", True)])
def test_an_unknown_origin(wish: http_versions.Wish, offered: bool) -> None:
    assert HttpVersions(wish).offers_2("a.test") is offered


def test_two_is_tried_once_and_kept_if_it_works() -> None:
    versions = HttpVersions("auto")
    assert versions.try_2("a.test", surely=True)
    assert versions.offers_2("a.test")
    assert not versions.try_2("a.test", surely=True)
    versions.answered("a.test", with_2=True)
    assert not versions.failed_with_2("a.test")  # an ordinary failure of a server that speaks it
    assert versions.offers_2("a.test")
    assert not versions.offers_2("b.test")


@pytest.mark.parametrize("end", ["fails", "chooses 1", "wants 1"])
def test_two_that_does_not_work_is_not_tried_again_for_a_day(end: str) -> None:
    now = [0.0]
    versions = HttpVersions("auto", now=lambda: now[0])
    assert versions.try_2("a.test", surely=True)
    if end == "fails":
        assert versions.failed_with_2("a.test")
    elif end == "chooses 1":
        versions.answered("a.test", with_2=False)
    else:
        versions.refuse_2("a.test")
    versions.answered("a.test", with_2=False)
    assert not versions.try_2("a.test", surely=True)
    assert not versions.offers_2("a.test")
    now[0] = DAY
    assert versions.try_2("a.test", surely=True)


@pytest.mark.parametrize("wish", ["auto", "prefer"])
def test_a_lost_connection_is_no_proof_against_2_if_1_gives_no_answer_either(wish: http_versions.Wish) -> None:
    now = [0.0]
    versions = HttpVersions(wish, now=lambda: now[0])
    if wish == "auto":
        assert versions.try_2("a.test", surely=False)
    assert versions.failed_with_2("a.test")
    assert not versions.offers_2("a.test")
    assert not versions.try_2("a.test", surely=False)
    now[0] = 60.0
    assert versions.offers_2("a.test") or versions.try_2("a.test", surely=False)


def test_a_server_that_answers_by_1_is_tried_with_2_only_when_it_asks() -> None:
    versions = HttpVersions("auto")
    versions.answered("a.test", with_2=False)
    assert not versions.try_2("a.test", surely=False)
    assert versions.try_2("a.test", surely=True)


def test_a_preference_ends_where_the_server_chooses_1() -> None:
    versions = HttpVersions("prefer")
    versions.answered("a.test", with_2=False)
    assert not versions.offers_2("a.test")


def test_the_memory_is_bounded() -> None:
    versions = HttpVersions("auto")
    for number in range(10_001):
        assert versions.try_2(number, surely=True)
    assert not versions.offers_2(0)
    assert versions.offers_2(10_000)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default does without, and a preference is refused with the command that installs it."""
    monkeypatch.setattr(http_versions, "find_spec", lambda name: None)
    versions = HttpVersions("auto")
    with pytest.raises(Http2Needed, match="it answers oddly, and the extra http2 is not installed"):
        versions.check_2("a.test", "answers oddly")
    assert not versions.try_2("a.test", surely=True)
    versions.answered("a.test", with_2=False)
    versions.check_2("a.test", "answers oddly")
    check_wish("auto")
    with pytest.raises(BadInput, match="http2"):
        check_wish("prefer")


def test_the_library_is_imported_by_the_first_connection_only() -> None:
    script = "import sys; import gossamer.wiring.worker; sys.exit('h2' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
