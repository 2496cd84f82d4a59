"""The buses to measure: streams, and a Kafka broker of our own where one is installed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers import kafka


@dataclass(frozen=True, slots=True)
class Place:
    """One bus."""

    name: str
    servers: str = ""
    """Kafka's `host:port`; empty: streams in the frontier's server."""

    @property
    def bus(self) -> str:
        """As the setting `bus` names it."""
        return f"kafka://{self.servers}" if self.servers else "streams"


@contextlib.contextmanager
def buses() -> Iterator[list[Place]]:
    """Streams, then Kafka."""
    places = [Place("Streams")]
    with contextlib.ExitStack() as stack:
        if (kafka.CACHE / "installed").exists():
            places.append(Place("Kafka", stack.enter_context(kafka.broker()).servers))
        yield places
