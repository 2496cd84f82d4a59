"""What a person writes for a rate or a time, as numbers."""

import re
from datetime import UTC, datetime

from gossamer.errors import BadInput
from gossamer.model.crawl import Rate

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST_HITS = 1_000_000
_LEAST_WINDOW = 0.001
_LONGEST = 100 * 365 * 86400
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


def parse_rate(text: str) -> Rate:
    """`HITS/SECONDS`: `10/60` is ten a minute. Raises BadInput."""
    hits, slash, seconds = text.partition("/")
    try:
        rate = Rate(hits=int(hits), window_seconds=float(seconds) if slash else 1.0)
    except ValueError:
        raise BadInput(f"{text!r} is no rate; write HITS/SECONDS, for example 1/1 or 10/60") from None
    if not 1 <= rate.hits <= _MOST_HITS or not _LEAST_WINDOW <= rate.window_seconds <= 7 * 86400:
        raise BadInput(
            f"{text!r:.80} is no rate; at least 1 hit and at most {_MOST_HITS}, in {_LEAST_WINDOW} to 604800 seconds"
        )
    return rate


def parse_expires(text: str, *, now: float) -> float:
    """Epoch seconds of a span from now (`90`, `90m`, `12h`, `3d`) or an ISO 8601 time (UTC where it has no zone).

    Raises BadInput, also for a time that has passed.
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        moment = now + float(span[1]) * _UNITS[span[2]]
    else:
        try:
            stamp = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadInput(f"{text!r} is no time; write 90m, 12h, 3d, or 2030-01-31T12:00") from None
        moment = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if moment > now + _LONGEST:
        raise BadInput(f"the time {text!r:.80} is more than a hundred years away; leave --expires out for never")
    if moment <= now:
        raise BadInput(f"the time {text!r} has passed")
    return moment
