"""Sketches of texts: some bytes by which the share is estimated that two texts do not have in common.

A text is divided into pieces of some words, where words end with certain characters, so that a word that is put in
changes only the pieces around it. A hash sorts the pieces into bins, and the sketch has a byte of the least hash of
each bin (minwise hashing, Broder 1997, with one permutation: Li, Owen, Zhang, NIPS 2012). So the share of bins that
are equal estimates the pieces that both texts have, among those that one of them has; the error is about 0.1.

Fixed: the bytes of a sketch, which indexes store.
"""

import re
from typing import Final

from xxhash import xxh3_64_intdigest

_BINS: Final = 32
"""Bytes of a sketch. More would be more exact, and take memory for each page."""
_PIECE_END: Final = re.compile(r"(?<=[.!?;:,dty]) |(?<=[。、，！？；])")
"""Where a piece ends. Scripts without blanks end theirs at punctuation."""
_MOST_CHARACTERS: Final = 200_000
"""Beginning of a text that counts, so that a long one takes some milliseconds."""
_LONGEST_PIECE: Final = 80
"""Characters of a piece. A longer one is cut."""
_LEAST_SHARE: Final = 0.01
"""Share of two texts that differ, where the sketch shows no difference."""


def sketch_of(text: str) -> bytes:
    """Return the sketch of a text. Empty: the text is."""
    pieces = set(_PIECE_END.split(text[:_MOST_CHARACTERS]))
    for long in [piece for piece in pieces if len(piece) > _LONGEST_PIECE]:
        pieces.remove(long)
        pieces.update(long[start : start + _LONGEST_PIECE] for start in range(0, len(long), _LONGEST_PIECE))
    pieces.discard("")
    # In descending order, so that the least of each bin is entered last.
    hashes = sorted([xxh3_64_intdigest(piece.encode("utf-8", "replace")) for piece in pieces], reverse=True)
    least = {value % _BINS: 1 + value // _BINS % 255 for value in hashes}  # 0 is an empty bin
    return bytes(least.get(place, 0) for place in range(_BINS)) if least else b""


def share_changed(before: bytes, after: bytes) -> float:
    """Return the estimated share of two texts that differ which they do not have in common: 1 less twice the number of
    common pieces, divided by the number of pieces of both; from 0.01 to 1."""
    filled = [(old, new) for old, new in zip(before, after, strict=False) if old or new]
    if not filled:
        return 1.0
    common = sum(old == new for old, new in filled) / len(filled)  # of the pieces that one of the texts has
    return max(round((1 - common) / (1 + common), 2), _LEAST_SHARE)
