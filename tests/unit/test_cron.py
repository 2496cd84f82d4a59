"""Windows of cron lines: the first open moment, also where a clock is set, and lines that are refused."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gossamer.cron import CronWindow, check_cron, check_zone
from gossamer.errors import BadInput

BERLIN = ZoneInfo("Europe/Berlin")


def _opening(line: str, local: str, *, fold: int = 0) -> str:
    window = CronWindow(line, "Europe/Berlin")
    moment = datetime.fromisoformat(local).replace(tzinfo=BERLIN, fold=fold).timestamp()
    found = window.opening(moment)
    assert found >= moment
    assert window.opening(found) == found, "what has opened is open"
    return datetime.fromtimestamp(found, UTC).astimezone(BERLIN).strftime("%m-%d %H:%M:%S %z")


@pytest.mark.parametrize(
    ("line", "local", "opening"),
    [
        ("* 1-5 * * *", "2026-07-01T00:59:59", "07-01 01:00:00 +0200"),
        ("* 1-5 * * *", "2026-07-01T03:17:42", "07-01 03:17:42 +0200"),
        ("* 1-5 * * *", "2026-07-01T05:59:59", "07-01 05:59:59 +0200"),
        ("* 1-5 * * *", "2026-07-01T06:00:00", "07-02 01:00:00 +0200"),
        ("0 3 * * *", "2026-07-01T03:00:59", "07-01 03:00:59 +0200"),
        ("0 3 * * *", "2026-07-01T03:01:00", "07-02 03:00:00 +0200"),
        ("* * * * SUN", "2026-07-01T12:00:00", "07-05 00:00:00 +0200"),
        ("@monthly", "2026-07-01T00:01:00", "08-01 00:00:00 +0200"),
        # 2:00 to 3:00 is left out: a window of fixed minutes there is open once, at its end.
        ("0-29 2 * * *", "2026-03-29T00:00:00", "03-29 03:00:00 +0200"),
        ("* 1-3 * * *", "2026-03-29T01:59:59", "03-29 01:59:59 +0100"),
    ],
)
def test_the_first_moment_in_a_window(line: str, local: str, opening: str) -> None:
    assert _opening(line, local) == opening


def test_the_hour_that_is_repeated_in_autumn() -> None:
    assert _opening("* 2 * * *", "2026-10-25T02:30:00", fold=1) == "10-25 02:30:00 +0100", "every minute of the hour"
    assert _opening("0-29 2 * * *", "2026-10-25T02:10:00", fold=1) == "10-26 02:00:00 +0100", "fixed minutes, once"


@pytest.mark.parametrize(
    ("line", "local", "closing"),
    [
        ("* 1-5 * * *", "2026-07-01T01:00:00", "07-01 06:00:00 +0200"),
        ("* 1-5 * * *", "2026-07-01T05:59:59", "07-01 06:00:00 +0200"),
        ("* 1-5 * * *", "2026-07-01T06:00:01", "07-01 06:00:01 +0200"),
        ("* 1-5 * * *", "2026-07-01T00:59:59", "07-01 00:59:59 +0200"),
        ("0-29,35 6 * * *", "2026-07-01T06:10:30", "07-01 06:30:00 +0200"),
        ("* * * * *", "2026-07-01T12:00:30", "07-02 12:01:00 +0200"),
        ("* 1-3 * * *", "2026-03-29T01:00:00", "03-29 04:00:00 +0200"),
        ("* 2 * * *", "2026-10-25T02:30:00", "10-25 03:00:00 +0100"),
    ],
)
def test_the_first_moment_behind_a_window(line: str, local: str, closing: str) -> None:
    window = CronWindow(line, "Europe/Berlin")
    moment = datetime.fromisoformat(local).replace(tzinfo=BERLIN).timestamp()
    for earlier in (90_000, 60, 0):  # what it remembers of others does not matter
        window.closing(moment - earlier)
    found = window.closing(moment)
    assert datetime.fromtimestamp(found, UTC).astimezone(BERLIN).strftime("%m-%d %H:%M:%S %z") == closing


@pytest.mark.parametrize("line", ["* 3 * * *", "* 2,3 * * *", "* 2-4 * * *", "*/5 3 * * *"])
def test_an_hour_is_repeated_from_its_middle_on(line: str) -> None:
    place = ZoneInfo("Pacific/Chatham")  # at 3:45 the clock is set back to 2:45
    window = CronWindow(line, str(place))
    hours = [int(part) for part in line.split()[1].replace("-4", ",3,4").split(",")]
    begin = int(datetime(2026, 4, 5, 1, tzinfo=place).timestamp())
    for moment in range(begin, begin + 5 * 3600, 420):
        opening = datetime.fromtimestamp(window.opening(moment), UTC).astimezone(place)
        assert opening.hour in hours
        assert opening.timestamp() - moment < 86_400


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("* * * *", r"'\* \* \* \*' has 4 fields, not five"),
        ("61 25 * * *", r"minute '61' is not made of 0 to 59; hour '25' is not made of 0 to 23"),
        ("0 0 30 2 *", "names a day that none of its months has"),
        ("* " * 200, "longer than 200 characters"),
        ("", "has 0 fields"),
    ],
)
def test_what_is_no_cron_line(line: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        check_cron(line)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["Mars/Olympus", "localtime", "../etc/passwd", ""])
def test_what_is_no_time_zone(name: str) -> None:
    with pytest.raises(BadInput, match="write a name such as Europe/Berlin or UTC"):
        check_zone(name)
