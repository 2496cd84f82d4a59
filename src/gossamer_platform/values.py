"""Numbers in messages, which every form of JSON can express. Pure: no I/O."""

from typing import Annotated

from msgspec import Meta

Whole = Annotated[int, Meta(gt=-(2**53), lt=2**53)]
"""Whole number in a message. A larger one is not exact everywhere."""
Real = Annotated[float, Meta(gt=-(2**53), lt=2**53)]
"""Number in a message, which is finite."""
