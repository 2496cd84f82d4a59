"""robots.txt by RFC 9309: its rules, who shares them, and the service that fetches each origin's once."""

from gossamer.fetch.robots.rules import RobotsRules, RobotsVerdict
from gossamer.fetch.robots.service import MemoryRobotsStore, RobotsService, RobotsStore, RobotsUnavailable

__all__ = ["MemoryRobotsStore", "RobotsRules", "RobotsService", "RobotsStore", "RobotsUnavailable", "RobotsVerdict"]
