"""Headers of Scrapy's messages, as the rest of Gossamer takes them."""

from scrapy.http import Headers


def header_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return all headers as text (Latin-1, as on the wire), a pair for each value."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, values in headers.items() for value in values]
