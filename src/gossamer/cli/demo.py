"""later"""


def demo() -> None:
    """Later."""
