"""What an output's ending means: how records become bytes, and how the bytes lie in the file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.errors import BadInput
from gossamer.model.record import Output
from gossamer.sinks.blocks import Blocks
from gossamer.sinks.frames import Frames
from gossamer.sinks.framing import Framing
from gossamer.sinks.jsonl import json_units
from gossamer.sinks.lines import Lines
from gossamer.sinks.members import Members
from gossamer.sinks.warc import info_units, warc_units


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file that batches can be appended to."""

    suffix: str
    framing: Callable[[], Framing]
    encode: Callable[[Sequence[Output]], list[bytes]]
    head: Callable[[], list[bytes]] = list
    """What a new file begins with."""
    wants_wire: bool = False


JSONL_ZST = Kind(".jsonl.zst", Frames, json_units)

KINDS = (
    Kind(".jsonl", Lines, json_units),
    Kind(".jsonl.gz", Members, json_units),
    JSONL_ZST,
    Kind(".warc", Blocks, warc_units, info_units, wants_wire=True),
    Kind(".warc.gz", Members, warc_units, info_units, wants_wire=True),
)

PARQUET = ".parquet"
"""Cannot be appended to: it waits in a spool, see `parquet.py`."""


def kind_of(path: str) -> Kind | None:
    """The kind a path or URL ends in; None for Parquet. `BadInput` names the known endings."""
    ending = path.lower()
    if ending.endswith(PARQUET):
        return None
    for kind in KINDS:
        if ending.endswith(kind.suffix):
            return kind
    known = " ".join([kind.suffix for kind in KINDS] + [PARQUET])
    raise BadInput(f"the output {path} has an unknown ending; known are {known}, and - for standard output")
