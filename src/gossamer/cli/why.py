"""later"""


def why() -> None:
    """Later."""
