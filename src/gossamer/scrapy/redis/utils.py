"""scrapy-redis's module of helper functions, for projects whose code calls them.

Names, parameters and results must stay those of scrapy-redis; a test compares them. Nothing in Gossamer calls them.
"""

import json
from typing import Any


class TextColor:
    """Terminal escape sequences."""

    HEADER = "\033[95m"
    OKBLUE = "\033[94m"
    OKCYAN = "\033[96m"
    OKGREEN = "\033[92m"
    WARNING = "\033[93m"
    FAIL = "\033[91m"
    ENDC = "\033[0m"
    BOLD = "\033[1m"
    UNDERLINE = "\033[4m"


def bytes_to_str(s: Any, encoding: str = "utf-8") -> Any:
    """Return bytes as text, and any other value as it is."""
    return s.decode(encoding) if isinstance(s, bytes) else s


def is_dict(string_content: str) -> bool:
    """Return whether the text is JSON. It need not be an object, whatever the name says."""
    try:
        json.loads(string_content)
    except json.JSONDecodeError:
        return False
    return True


def convert_bytes_to_str(data: Any, encoding: str = "utf-8") -> Any:
    """Return the value with bytes decoded, also inside dictionaries, lists and tuples."""
    if isinstance(data, dict):
        return {convert_bytes_to_str(k, encoding): convert_bytes_to_str(v, encoding) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(convert_bytes_to_str(one, encoding) for one in data)
    return bytes_to_str(data, encoding)
