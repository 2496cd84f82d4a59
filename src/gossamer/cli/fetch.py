"""later"""


def fetch() -> None:
    """Later."""
