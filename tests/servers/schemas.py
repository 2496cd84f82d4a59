"""Which schema an outgoing message is to satisfy, told from the message alone, as a consumer would."""

from functools import cache
from typing import Any

import jsonschema_rs

from gossamer.model.messages.reader import EVENTS, schema


def check_outgoing(message: dict[str, Any]) -> None:
    """Raises jsonschema_rs.ValidationError for a message that is not as documented. Plug-ins' answers are not known."""
    _validator(_name(message)).validate(message)


@cache
def _validator(name: str) -> Any:
    return jsonschema_rs.validator_for(schema(name))


def _name(message: dict[str, Any]) -> str:
    if "type" in message:
        return "page_1_0" if "headers" in message else str(message["type"])
    action = message.get("action", "")
    if action in (*EVENTS, "stop", "rejected", "duplicate", "blacklisted"):
        return str(action)
    if action:
        return "domain_answer"
    if "stats" in message:
        return "stats_answer"
    if "topic" in message:
        return "dead_letter"
    if "crawlids" in message:
        is_old = any("domains" not in crawl for crawl in message["crawlids"].values())
        return "info_app_1_0" if is_old else "info_app"
    return "info" if "domains" in message else "info_1_0"
