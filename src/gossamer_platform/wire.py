"""Messages between a node and a manager as JSON: how they are written and read, and those that only HTTP needs.

A message is a struct of `link.py` or of this module; on the wire it is an object with its fields. A reader ignores
fields that it does not know and gives absent ones their defaults, so that node and manager may be of different
releases. Fields may be added with a default; nothing may be removed while nodes of an earlier release may run.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Final, TypeVar, get_args

from msgspec import Meta, Struct

from gossamer.errors import BadInput
from gossamer.model import json_codec
from gossamer_platform.link import MAX_SLOTS, AttemptId, BeatOrder, NodeReport, StopOrder
from gossamer_platform.values import Real

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
"""Longest part of a log or of items that a node sends in a call. To raise it, update all managers before any node:
managers of an earlier release refuse longer parts."""
MAX_CALL_BYTES: Final = 16 * 1024 * 1024
"""Longest body of another call: a list of spiders may have 4 MiB. To raise it, update managers first, too."""
MAX_NAME: Final = 64
"""Longest name of a node, its process, or its folder. The database's: fixed."""


class Registration(Struct, frozen=True):
    """Call `register`."""

    folder: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOTS)]
    labels: Sequence[str] = ()
    address: str = ""
    release: str = ""


class KnownAttempt(Struct, frozen=True):
    """An attempt that the manager believes to be the node's."""

    id: AttemptId
    was_started: bool


class Registered(Struct, frozen=True):
    """Answer to `register`."""

    attempts: Sequence[KnownAttempt]
    limit_seconds: float
    """Silence after which the node must have killed its jobs."""


class RunningAttempt(Struct, frozen=True):
    """An attempt in a heartbeat."""

    id: AttemptId
    state: str
    """State of the attempt by its files, for people."""


class Beat(Struct, frozen=True):
    """Call `beat`: all attempts that the node has."""

    attempts: Sequence[RunningAttempt]


class AttemptOrder(Struct, frozen=True):
    """Order to the node about an attempt of its heartbeat."""

    id: AttemptId
    order: BeatOrder
    stop: StopOrder | None = None


class BeatAnswer(Struct, frozen=True):
    """Answer to `beat`."""

    orders: Sequence[AttemptOrder]
    limit_seconds: float


class Leave(Struct, frozen=True):
    """Call `leave`: the node's process ends."""


class Wait(Struct, frozen=True):
    """Call `wait`: answered when there may be work, or after the time."""

    cursor: str
    """Cursor that the call before returned. Empty: this is the first; it is answered at once."""
    seconds: Real


class BareSignal(Struct, frozen=True):
    """A signal that stops no job."""

    attempt: AttemptId
    signal: int


class Woken(Struct, frozen=True):
    """Answer to `wait`."""

    cursor: str
    signals: Sequence[BareSignal] = ()


class ReceivedEnd(Struct, frozen=True):
    """Answer to a part of a log or of items."""

    end: int
    """Offset up to which the manager has the node's file."""


class Done(Struct, frozen=True):
    """Answer that says nothing but that the call was carried out."""


REPORTS: Final[Mapping[str, type[NodeReport]]] = {kind.__name__.lower(): kind for kind in get_args(NodeReport)}
"""Reports by their paths."""


def encode(message: Struct) -> bytes:
    """Return a message as JSON. A job may report anything: halves of characters become U+FFFD, and NaN null."""
    return json_codec.encode_value(message)


def decode(kind: type[T], content: bytes) -> T:
    """Return the message of this class in JSON. Raises BadInput with the place.

    The statistics of a job may have what Python writes and JSON does not have: NaN and the infinities, which become
    null, and halves of surrogate pairs, which become U+FFFD. The end of the job must be known in spite of them.
    """
    try:
        return json_codec.decode(content, kind)
    except json_codec.UnexpectedJson as error:
        raise BadInput(f"{kind.__name__}{error.place}: {error}") from None
    except json_codec.InvalidJson as error:
        try:
            mended = json_codec.encode_value(json.loads(content.decode()))
        except (ValueError, RecursionError):
            raise BadInput(f"the body {error}") from None
        if mended == content:
            raise BadInput(f"the body {error}") from None
        return decode(kind, mended)
