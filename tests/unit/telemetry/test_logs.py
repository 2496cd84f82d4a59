"""What a log for people shows of the texts of others."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from gossamer.telemetry import logs

_SAID = "\x1b[2Jgone\r\n2026-01-01 00:00:00,000 ERROR gossamer: forged\x9b"
_SHOWN = ["\ufffd[2Jgone\ufffd", "    2026-01-01 00:00:00,000 ERROR gossamer: forged\ufffd", ""]


@contextlib.contextmanager
def _logging() -> Iterator[logging.Logger]:
    """A logger whose records go to standard error."""
    root = logging.getLogger("gossamer")
    handlers, level = root.handlers[:], root.level
    logs.set_up("WARNING")
    try:
        yield logging.getLogger("gossamer.tests")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_a_message_acts_on_no_terminal_and_forges_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    with _logging() as log:
        log.warning("%s %s", logs.HUB_REFUSED, _SAID)
    first, *others = capsys.readouterr().err.split("\n")
    assert first.endswith(f"WARNING gossamer.tests: hub_refused {_SHOWN[0]}")
    assert others == _SHOWN[1:]


def test_neither_does_the_error_of_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with _logging() as log:
        try:
            raise ValueError(_SAID)
        except ValueError:
            log.exception("broke")
    first, second, *others = capsys.readouterr().err.split("\n")
    assert first.endswith("ERROR gossamer.tests: broke")
    assert second == "    Traceback (most recent call last):"
    assert others[-3:] == [f"    ValueError: {_SHOWN[0]}", *_SHOWN[1:]]
