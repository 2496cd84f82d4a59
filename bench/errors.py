"""Error of measurements that cannot be made."""


class BenchFailed(Exception):
    """A measurement could not be made; the message says why."""
