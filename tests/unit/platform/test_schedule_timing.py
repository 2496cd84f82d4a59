"""The instants of schedules: daylight saving, intervals, ends, and lines that are refused."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gossamer.errors import BadInput
from gossamer_platform.schedules.timing import RuleKind, ScheduleRule, checked_rule, due_at, jitter_of


def _cron(line: str, zone: str = "Europe/Berlin") -> ScheduleRule:
    return checked_rule(ScheduleRule(RuleKind.CRON, line, zone, 0.0))


def _local(rule: ScheduleRule, begin: str, count: int) -> list[str]:
    """The instants after a local time, in local time with its distance to UTC."""
    zone = ZoneInfo(rule.zone)
    instant, found = datetime.fromisoformat(begin).replace(tzinfo=zone).timestamp(), []
    for _ in range(count):
        following = rule.next_after(instant)
        assert following is not None
        assert following > instant
        instant = following
        found.append(datetime.fromtimestamp(instant, UTC).astimezone(zone).strftime("%m-%d %H:%M %z"))
    return found


def test_a_time_that_is_left_out_in_spring_comes_once() -> None:
    assert _local(_cron("30 2 * * *"), "2026-03-28 12:00", 2) == ["03-29 03:00 +0200", "03-30 02:30 +0200"]


def test_a_time_that_is_repeated_in_autumn_comes_once() -> None:
    assert _local(_cron("30 2 * * *"), "2026-10-24 12:00", 2) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]


def test_each_real_half_hour_comes_in_the_hour_that_is_repeated() -> None:
    assert _local(_cron("*/30 * * * *"), "2026-10-25 01:45", 5) == [
        "10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100", "10-25 03:00 +0100",
    ]  # fmt: skip


def test_a_change_of_half_an_hour() -> None:
    """Lord Howe Island: 02:00 to 02:30 is left out in October, 01:30 to 02:00 is repeated in April."""
    rule = _cron("15 2 * * *", "Australia/Lord_Howe")
    assert _local(rule, "2026-10-03 12:00", 2) == ["10-04 02:30 +1100", "10-05 02:15 +1100"]
    rule = _cron("45 1 * * *", "Australia/Lord_Howe")
    assert _local(rule, "2026-04-04 12:00", 2) == ["04-05 01:45 +1100", "04-06 01:45 +1030"]


def test_no_instant_is_earlier_than_the_one_before_it() -> None:
    """From every quarter of an hour around a change, in whatever hour it falls."""
    for line in ("30 2 * * *", "*/20 2 * * *", "0 * * * *", "5,35 1-3 * * *"):
        rule = _cron(line)
        for change in (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 10, 24, 23, tzinfo=UTC)):
            for quarter in range(24):
                begin = change.timestamp() + 900 * quarter
                found = rule.next_after(begin)
                assert found is not None
                assert found > begin


def test_names_and_sundays() -> None:
    assert _local(_cron("@daily"), "2026-01-01 12:00", 1) == ["01-02 00:00 +0100"]
    assert _local(_cron("0 0 * * 7"), "2026-01-01 12:00", 1) == _local(_cron("0 0 * * SUN"), "2026-01-01 12:00", 1)


def test_an_interval_counts_from_its_start() -> None:
    rule = ScheduleRule(RuleKind.EVERY, "90", "UTC", 1000.0, 1200.0)
    assert [rule.next_after(instant) for instant in (0.0, 1000.0, 1001.0, 1090.0, 1180.0)] == [
        1000.0, 1090.0, 1090.0, 1180.0, None,
    ]  # fmt: skip


def test_an_interval_that_is_no_binary_fraction_never_stands_still() -> None:
    rule, instant = ScheduleRule(RuleKind.EVERY, "1.1", "UTC", 1_790_000_000.3), 1_790_000_000.0
    for _ in range(10_000):
        following = rule.next_after(instant)
        assert following is not None
        assert following > instant
        instant = following


def test_a_single_time_comes_once() -> None:
    rule = ScheduleRule(RuleKind.ONCE, "", "UTC", 1000.0)
    assert (rule.next_after(999.0), rule.next_after(1000.0)) == (1000.0, None)


def test_a_cron_line_keeps_its_start() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    rule = ScheduleRule(RuleKind.CRON, "0 * * * *", "UTC", start)
    assert rule.next_after(0.0) == start
    assert rule._replace(start=start + 0.5).next_after(0.0) == start + 3600


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("* * * *", "has 4 fields, not five"),
        ("0 * * * * *", "has 6 fields, not five"),
        ("@reboot", "has 1 fields, not five"),
        ("R * * * *", "minute 'R'"),
        ("0 0 L * *", "day of the month 'L'"),
        ("0 0 * * 5#2", "day of the week '5#2'"),
        ("0 0 * * 5L", "day of the week '5L'"),
        ("0 0 30 2 *", "names a day that none of its months has"),
        ("*/0 * * * *", "minute '*/0'"),
        ("0 0 * * FRI-MON", "day of the week 'FRI-MON'"),
        ("0 " * 300, "longer than"),
    ],
)
def test_a_wrong_line_is_refused(line: str, said: str) -> None:
    with pytest.raises(BadInput, match=r"^cron: ") as caught:
        _cron(line)
    assert said in str(caught.value)


def test_each_of_five_faults_is_named() -> None:
    with pytest.raises(BadInput) as caught:
        _cron("60 24 32 13 8")
    for field in ("minute '60'", "hour '24'", "day of the month '32'", "month '13'", "day of the week '8'"):
        assert field in str(caught.value)


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../etc/passwd", "", "/etc/localtime"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadInput, match="time_zone"):
        _cron("@daily", zone)


def test_the_jitter_of_an_instant_is_always_the_same_and_within_its_limit() -> None:
    found = [jitter_of(schedule, 1000.0, 60.0) for schedule in range(200)]
    assert found == [jitter_of(schedule, 1000.0, 60.0) for schedule in range(200)]
    assert all(0 <= jitter < 60 for jitter in found)
    assert max(found) - min(found) > 50


@pytest.mark.parametrize("rule", [ScheduleRule(RuleKind.EVERY, "600", "UTC", 1000.0), _cron("*/10 * * * *")])
def test_no_instant_is_due_after_the_one_that_follows_it(rule: ScheduleRule) -> None:
    """Although the jitter is longer than the interval: an instant that is overtaken makes no job."""
    instant, postponed = rule.next_after(1000.0), []
    for _ in range(144):
        assert instant is not None
        following = rule.next_after(instant)
        assert following is not None
        due = due_at(rule, 7, instant, 3600.0)
        assert instant <= due <= following
        postponed.append(due - instant)
        instant = following
    assert max(postponed) - min(postponed) > 500


def test_a_single_time_has_all_of_its_jitter() -> None:
    rule = ScheduleRule(RuleKind.ONCE, "", "UTC", 1000.0)
    assert due_at(rule, 7, 1000.0, 3600.0) == 1000.0 + jitter_of(7, 1000.0, 3600.0)
