"""What can go wrong with a measurement."""


class BenchFailed(Exception):
    """A measurement could not be made; the message says why."""
