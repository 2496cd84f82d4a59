"""Every key of a bus on Valkey Streams, with its type and its end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """The braces keep what belongs to a topic in one cluster slot, and spread the topics over the cluster."""

    prefix: str

    def stream(self, topic: str) -> str:
        """A stream: fields v (the value), c (bytes put before it) and k (the key, where there is one).

        Ends: kept until acknowledged, 30 days after it became empty; the others, a retention after the last message."""
        return f"{{{self.prefix}:bus:{topic}}}"

    def facts(self, topic: str) -> str:
        """A hash: put (bytes ever put), gone (bytes that have left, as far as anybody had to know). Ends with the
        stream."""
        return f"{self.stream(topic)}:facts"

    @property
    def names(self) -> str:
        """A sorted set: the topics' names by when somebody last used them; one leaves 30 days after."""
        return f"{{{self.prefix}:bus}}:names"

    @property
    def channel(self) -> str:
        """A channel, no key: consumers hear of messages here."""
        return f"{{{self.prefix}:bus}}:wake"
