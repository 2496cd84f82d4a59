"""What everything that speaks to Kafka needs: the library, its threads, its errors under the bus's names."""

import asyncio
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from gossamer.errors import BusError, BusUnavailable, MessageTooLarge

T = TypeVar("T")

log = logging.getLogger("gossamer.bus.kafka")

ANSWER_SECONDS = 5.0
"""A broker that is there answers within so long."""
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


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
