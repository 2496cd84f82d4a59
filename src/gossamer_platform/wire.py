"""Messages between a node and a manager as JSON: how they are written and read, and those that only HTTP needs.

A message is a NamedTuple of `link.py` or of this module; on the wire it is an object with its fields. A reader ignores
fields that it does not know and gives absent ones their defaults, so that node and manager may be of different
releases. Fields may be added with a default; nothing may be removed while nodes of an earlier release may run.
"""

import platform
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from gossamer.errors import BadInput
from gossamer_platform.link import (
    AttemptId,
    AttemptProgress,
    BeatOrder,
    EnvironmentReport,
    ListingResult,
    StopOrder,
)
from gossamer_platform.outcome import AttemptEnd

T = TypeVar("T")

NODE_HEADER: Final = "Gossamer-Node"
"""Header with the node's name, in every call. Fixed."""
INCARNATION_HEADER: Final = "Gossamer-Incarnation"
"""Header with the random name of the node's process. Fixed."""
PREFIX: Final = "/nodes/v1"
"""Path before all calls of nodes. Fixed."""
RELEASE: Final = f"Gossamer {version('gossamer-crawl')}, Python {platform.python_version()}"
"""Releases that a node runs, which operators see."""
LONGEST_WAIT_SECONDS: Final = 25.0
"""Longest time for which a manager keeps a call that waits for work. Proxies cut longer ones off."""


MAX_PART_BYTES: Final = 4 * 1024 * 1024
"""Longest part of a log or of items that a node may send at a time. Managers first, then nodes."""


MAX_CALL_BYTES: Final = 16 * 1024 * 1024
"""Longest body of another call: a list of spiders may have 4 MiB. As above."""
_MAX_NUMBER: Final = 2**53
"""Bound of numbers in messages: larger ones are not exact everywhere."""


class Registration(NamedTuple):
    """Call `register`."""

    folder: str
    slots: int
    labels: Sequence[str] = ()
    address: str = ""
    release: str = ""


class KnownAttempt(NamedTuple):
    """An attempt that the manager believes to be the node's."""

    id: AttemptId
    was_started: bool


class Registered(NamedTuple):
    """Answer to `register`."""

    attempts: Sequence[KnownAttempt]
    limit_seconds: float
    """Silence after which the node must have killed its jobs."""


class RunningAttempt(NamedTuple):
    """An attempt in a heartbeat."""

    id: AttemptId
    state: str
    """State of the attempt by its files, for people."""


class Beat(NamedTuple):
    """Call `beat`: all attempts that the node has."""

    attempts: Sequence[RunningAttempt]


class AttemptOrder(NamedTuple):
    """Answer to one of them."""

    id: AttemptId
    order: BeatOrder
    stop: StopOrder | None = None


class BeatAnswer(NamedTuple):
    """Answer to `beat`."""

    orders: Sequence[AttemptOrder]
    limit_seconds: float


class Leave(NamedTuple):
    """Call `leave`: the node's process ends."""


class Started(NamedTuple):
    """Call `started`."""

    attempt: AttemptId
    pid: int


class Returned(NamedTuple):
    """Call `returned`."""

    attempt: AttemptId
    reason: str = ""


class Ended(NamedTuple):
    """Call `ended`."""

    attempt: AttemptId
    end: AttemptEnd


class Progress(NamedTuple):
    """Call `progress`."""

    attempts: Sequence[AttemptProgress]


class Listed(NamedTuple):
    """Call `listed`."""

    version_id: int
    result: ListingResult


class Prepared(NamedTuple):
    """Call `prepared`."""

    report: EnvironmentReport


class Wait(NamedTuple):
    """Call `wait`: answered when there may be work, or after the time."""

    cursor: str
    """Cursor that the call before returned. Empty: this is the first; it is answered at once."""
    seconds: float


class BareSignal(NamedTuple):
    """A signal that stops no job."""

    attempt: AttemptId
    signal: int


class Woken(NamedTuple):
    """Answer to `wait`."""

    cursor: str
    signals: Sequence[BareSignal] = ()


class ReceivedEnd(NamedTuple):
    """Answer to a part of a log or of items."""

    end: int
    """Offset up to which the manager has the node's file."""


class Done(NamedTuple):
    """Answer that says nothing but that the call was carried out."""


def encode(value: Any) -> Any:
    """Return a message as what `json` writes."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: encode(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def decode(kind: type[T], value: Any) -> T:
    """Return the message of this class that `value` is, as `json` has read it. Raises BadInput with the place."""
    return _decode(kind, value, kind.__name__)  # type: ignore[no-any-return]


def _decode(kind: Any, value: Any, place: str) -> Any:
    if get_origin(kind) in (UnionType, Union):
        if value is None and NoneType in get_args(kind):
            return None
        [kind] = [each for each in get_args(kind) if each is not NoneType]
        return _decode(kind, value, place)
    if hasattr(kind, "_fields"):
        return _decode_message(kind, value, place)
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        _, inner = get_args(kind)
        return {key: _decode(inner, each, f"{place}.{key}") for key, each in _checked(value, dict, place).items()}
    if get_origin(kind) is not None and issubclass(get_origin(kind), Sequence):
        inner = get_args(kind)[0]
        found = (_decode(inner, each, f"{place}[{n}]") for n, each in enumerate(_checked(value, list, place)))
        return tuple(found) if get_origin(kind) is tuple else list(found)
    return _decode_simple(kind, value, place)


def _decode_message(kind: Any, value: Any, place: str) -> Any:
    given, hints = _checked(value, dict, place), get_type_hints(kind)
    fields = {name: _decode(hints[name], given[name], f"{place}.{name}") for name in kind._fields if name in given}
    missing = [name for name in kind._fields if name not in fields and name not in kind._field_defaults]
    if missing:
        raise BadInput(f"{place} has no {missing[0]}")
    return kind(**fields)


def _decode_simple(kind: Any, value: Any, place: str) -> Any:
    if kind is Any:
        return value
    if kind is float:
        number = _checked(value, int | float, place)
        if not abs(number) < _MAX_NUMBER:  # also NaN
            raise BadInput(f"{place} is no number from -2**53 to 2**53")
        return float(number)
    if kind is int and not abs(_checked(value, int, place)) < _MAX_NUMBER:
        raise BadInput(f"{place} is no number from -2**53 to 2**53")
    if isinstance(kind, type) and issubclass(kind, Enum | Path):
        try:
            return kind(_checked(value, str, place))
        except ValueError:
            raise BadInput(f"{place}: {value!r} is unknown") from None
    return _checked(value, kind, place)


def _checked(value: Any, kind: Any, place: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadInput(f"{place}: {str(value)[:100]!r} has the wrong type")
    return value
