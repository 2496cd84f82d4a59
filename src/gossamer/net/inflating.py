"""Inflates data of zlib piece by piece, and damaged data up to the damage.

A library that fails returns nothing of the piece in which it fails.
"""

import contextlib
import zlib


def inflate_piece(inflater: "zlib._Decompress", data: bytes | memoryview, most: int) -> tuple[bytes, zlib.error | None]:
    """Return what an inflater makes of the next data, at most so many bytes, and its error: then the output is that up
    to the damage, and the inflater must not be used again."""
    before = inflater.copy()
    try:
        return inflater.decompress(data, most), None
    except zlib.error as error:
        output = bytearray()
        with contextlib.suppress(zlib.error):
            for at in range(len(data)):  # less than `most` comes of it, or there was no error
                output += before.decompress(data[at : at + 1])
        return bytes(output), error
