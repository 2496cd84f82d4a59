"""From bytes to a request, or to one sentence that says which field is wrong and why."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gossamer.errors import BadInput, RequestRejected
from gossamer.model.messages.explain import explain
from gossamer.model.messages.kinds import RequestKind, built_in
from gossamer.model.messages.schemas import TOO_DEEP, RequestLimits, check_json

__all__ = ["MessageReader", "RequestKind", "RequestLimits"]

_decode = msgspec.json.Decoder().decode


def decode(value: bytes) -> Any:
    """The JSON in these bytes, whatever it is. Raises RequestRejected, with the reason in words."""
    try:
        return _decode(value)
    except UnicodeDecodeError as error:
        raise RequestRejected(f"this is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise RequestRejected(f"this {TOO_DEEP}") from None
    except msgspec.DecodeError as error:
        raise RequestRejected(f"this is no JSON: {str(error).removeprefix('JSON is malformed: ')}") from None


class MessageReader:
    """Reads messages. Safe to share."""

    def __init__(self, kinds: Sequence[RequestKind] = (), *, limits: RequestLimits | None = None) -> None:
        """`kinds`: plug-ins beside the built-in ones. Raises BadInput for two of one name."""
        self._limits = limits or RequestLimits()
        self._kinds = sorted([*built_in(self._limits), *kinds], key=lambda kind: (kind.rank, kind.name))
        if len({kind.name for kind in self._kinds}) != len(self._kinds):
            raise BadInput(f"two kinds of request have one name: {', '.join(kind.name for kind in self._kinds)}")

    def read(self, value: bytes | dict[str, Any]) -> tuple[str, Any]:
        """(name of the kind, the request). Nothing in it is changed but that a null counts as absent.

        `value`: JSON in UTF-8, or an object as a decoder of JSON made it. Raises RequestRejected."""
        message = self.decoded(value) if isinstance(value, bytes) else self._checked(value)
        given = {name: part for name, part in message.items() if part is not None}
        for name, part in given.items():
            if not isinstance(part, str):
                check_json(part, name[:100])
        for kind in self._kinds:
            if kind.validator.is_valid(given):
                return kind.name, kind.build(given)
        raise explain(given, self._kinds)

    def decoded(self, value: bytes) -> dict[str, Any]:
        """The JSON object in these bytes. Raises RequestRejected."""
        self._check_size(len(value))
        message = decode(value)
        if not isinstance(message, dict):
            raise RequestRejected("this is JSON, but no object")
        return message

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        """The same, once it is clear that it could have come as bytes."""
        try:
            self._check_size(len(msgspec.json.encode(message)))
        except RecursionError:
            raise RequestRejected(f"this {TOO_DEEP}") from None
        except UnicodeEncodeError:
            raise RequestRejected("this holds half of a surrogate pair, which is no text") from None
        except (TypeError, OverflowError, ValueError) as error:
            raise RequestRejected(f"this cannot be said in JSON: {error}"[:300]) from None
        return message

    def _check_size(self, size: int) -> None:
        most = self._limits.message_bytes
        if size > most:
            raise RequestRejected(f"the message has {size:,} bytes, more than the {most:,} allowed")
