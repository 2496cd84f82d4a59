"""The frontier on Valkey or Redis 7.0 or newer."""

from gossamer.frontier.valkey.frontier import ValkeyFrontier

__all__ = ["ValkeyFrontier"]
