"""What everything that speaks to Kafka needs: the library, its threads, its errors under the bus's names."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from gossamer.errors import BadInput, BusError, BusUnavailable, MessageTooLarge

T = TypeVar("T")

log = logging.getLogger("gossamer.bus.kafka")
# The same options go to producers, consumers and the admin client; each warns of those meant for another.
log.addFilter(lambda record: "property and will be ignored by this" not in record.getMessage())

ANSWER_SECONDS = 5.0
"""A broker that is there answers within so long."""
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}

_DURABLE = "a page counts as done when every in-sync replica has it, once and in order"
_COMMITTED = "a message is committed after its work is done, not before"
_GROUPS = "gossamer chooses where each of its consumers reads"
_RESERVED = {
    "bootstrap.servers": "the setting bus names the brokers",
    "metadata.broker.list": "the setting bus names the brokers",
    "message.max.bytes": "the setting kafka.largest says it",
    "acks": _DURABLE,
    "request.required.acks": _DURABLE,
    "enable.idempotence": _DURABLE,
    "transactional.id": _DURABLE,
    "delivery.report.only.error": "publishing waits for the report of each delivery",
    "enable.auto.commit": _COMMITTED,
    "enable.auto.offset.store": _COMMITTED,
    "group.id": _GROUPS,
    "auto.offset.reset": _GROUPS,
    "enable.partition.eof": _GROUPS,
}
"""Options of librdkafka, with their aliases, on which the bus's promises rest, and why each cannot be set."""


def check_options(options: Mapping[str, str]) -> None:
    """Raises BadInput for an option that is reserved, unknown to librdkafka, or has an impossible value."""
    for name in options:
        if name in _RESERVED:
            raise BadInput(f"kafka.options: {name} cannot be set; {_RESERVED[name]}")
    try:
        # Without brokers it connects to nothing, and checks each option and how they go together.
        Producer({"enable.idempotence": True, **options, "logger": log})
    except KafkaException as error:
        raise BadInput(f"kafka.options: {error.args[0].str()}") from None
    except (TypeError, AttributeError):  # callbacks and loggers, which a text cannot be
        raise BadInput(f"kafka.options: one of {', '.join(options)} cannot be a text") from None


def partitions_of(client: Any, topic: str) -> list[int]:
    """Their numbers; none while the topic is not known where the client asks."""
    found = client.list_topics(topic, timeout=ANSWER_SECONDS).topics.get(topic)
    return sorted(found.partitions) if found is not None and found.error is None else []


def limit_of(admin: Any, topic: str) -> int:
    """Bytes that a topic which is there allows for a message; where that may not be asked, any."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        facts = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource].result(2 * ANSWER_SECONDS)
        return int(facts["max.message.bytes"].value)
    except KafkaException as error:
        if error.args[0].code() not in _FORBIDDEN:
            raise
        return sys.maxsize


async def in_thread(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """What a blocking call gives, off the event loop. Raises BusError."""
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise translated(error.args[0]) from error


def translated(error: Any) -> BusError:
    """librdkafka's error as the bus's."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(f"{error.str()}; raise the topic's max.message.bytes, or lower kafka.largest")
    if error.fatal():
        return BusError(error.str())
    return BusUnavailable(f"Kafka: {error.str()}")
