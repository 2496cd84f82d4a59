"""Messages between node and manager: their form on the wire, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import BadInput
from gossamer.storage.sql.storable import storable
from gossamer_platform import wire
from gossamer_platform.link import (
    Artefact,
    AttemptId,
    AttemptProgress,
    Ended,
    JobAssignment,
    NodeOrders,
    NodeTurn,
    Progress,
    Started,
)
from gossamer_platform.outcome import AttemptEnd


def test_a_message_is_an_object_with_all_its_fields() -> None:
    orders = NodeOrders(
        [
            JobAssignment(
                id=AttemptId(7, 1),
                spider="a",
                artefact=Artefact("p", "1", "d", Path("/eggs/1.egg"), ""),
                arguments={"x": "1"},
                settings={},
                output="",
                items="",
            )
        ]
    )
    sent = wire.encode(orders)
    job = json.loads(sent)["jobs"][0]
    assert job["id"] == {"job": 7, "number": 1}
    assert job["artefact"]["path"] == "/eggs/1.egg"
    assert job["artefact"]["environment"] == "shared"
    assert job["input"] == {"digest": "", "name": "", "use": ""}
    assert wire.encode(wire.decode(NodeOrders, sent)) == sent


def test_reports_keep_their_paths() -> None:
    assert list(wire.REPORTS) == ["started", "returned", "ended", "progress", "listed", "prepared"]


def test_a_reader_ignores_unknown_fields_and_gives_absent_ones_their_defaults() -> None:
    message = b'{"attempt": {"job": 7, "number": 1, "shard": 3}, "end": {}, "mood": "good"}'
    assert wire.decode(Ended, message) == Ended(AttemptId(7, 1), AttemptEnd())


def test_counters_of_any_value_arrive_as_the_database_keeps_them() -> None:
    stats = {"half": "\ud800", "huge": 2**80, "infinite": math.inf, "none": None, "list": [1.5], "\udfff": 1}
    sent = wire.encode(Progress([AttemptProgress(AttemptId(7, 1), stats)]))
    kept = {"half": "\ufffd", "huge": 2**80, "infinite": None, "none": None, "list": [1.5], "\ufffd": 1}
    assert wire.decode(Progress, sent).attempts[0].stats == kept == storable(stats)


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        (NodeTurn, {"free": True}, "NodeTurn.free: Expected `int`, got `bool`"),
        (NodeTurn, {"free": 10_001}, "NodeTurn.free: Expected `int` <= 10000"),
        (NodeTurn, {"free": 1, "attempts": [{"job": 2**53, "number": 1}]}, r"NodeTurn.attempts\[0\].job: Expected"),
        (NodeTurn, [], "NodeTurn: Expected `object`, got `array`"),
        (Started, {"attempt": {"job": 1, "number": 1}, "pid": 0}, "Started.pid: Expected `int` >= 1"),
        (Ended, {"attempt": {"job": 1, "number": 1}, "end": {"exit_code": 2**31}}, "Ended.end.exit_code: Expected"),
        (Ended, {"attempt": {"job": 1, "number": 1}, "end": {"ago_seconds": math.nan}}, "Ended.end.ago_seconds: Exp"),
        (wire.Wait, {"cursor": "", "seconds": math.inf}, "Wait.seconds: Expected `float`"),
        (wire.Wait, {"cursor": "", "seconds": 1e300}, "Wait.seconds: Expected `float`"),
        (wire.Registration, {"folder": "", "slots": 1}, "Registration.folder: Expected `str` of length >= 1"),
        (wire.BeatAnswer, {"orders": [{"id": {"job": 1, "number": 1}, "order": "x"}], "limit_seconds": 1}, "Invalid"),
    ],
)  # fmt: skip
def test_a_wrong_message_is_refused_with_its_place(kind: type[Any], message: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        wire.decode(kind, json.dumps(message).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b'\xef\xbb\xbf{"free": 1}', "is not JSON"),
        ('{"free": 1}'.encode("utf-16"), "is not JSON"),
        (b'{"free": 1, "x": ' + b"[" * 1_000_000, "is nested too many levels deep"),
    ],
)
def test_what_is_no_json_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=f"the body {said}"):
        wire.decode(NodeTurn, content)


def test_statistics_as_python_writes_them_are_read() -> None:
    """Nodes of before send them as the job has them: the end of a job must be known whatever it counted."""
    sent = rb'{"attempts": [{"id": {"job": 7, "number": 1}, "stats": {"a": NaN, "b": "\ud800", "c": 1e999, "d": 5}}]}'
    assert wire.decode(Progress, sent).attempts[0].stats == {"a": None, "b": "\ufffd", "c": None, "d": 5}


def test_a_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadInput, match="the body is not UTF-8"):
        wire.decode(wire.Wait, b'{"cursor": "\xff", "seconds": 1}')
