"""robots.txt by RFC 9309: its rules, who shares them, and the service that fetches each origin's once."""

from gossamer.fetch.robots.rules import Robots, RobotsVerdict
from gossamer.fetch.robots.service import RobotsService, RobotsUnavailable
from gossamer.fetch.robots.store import MemoryRobotsStore, RobotsStore

__all__ = ["MemoryRobotsStore", "Robots", "RobotsService", "RobotsStore", "RobotsUnavailable", "RobotsVerdict"]
