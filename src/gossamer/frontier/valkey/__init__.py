"""The frontier on Valkey or Redis >= 7.0."""

from gossamer.frontier.valkey.frontier import ValkeyFrontier

__all__ = ["ValkeyFrontier"]
