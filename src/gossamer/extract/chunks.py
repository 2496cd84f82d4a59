"""Splits the content of a page into chunks of limited length, by its headings.

A section with all its subsections is one chunk if it fits. If it does not, its own text and each of its subsections are
chunks of their own; a text that is still too long is cut between blocks, then lines, then words. A code block that is
cut is closed and opened again, and a table that is cut repeats its header. Lengths are characters of the result.

Fixed: no chunk is longer than the limit, and the chunks together have every block, in order.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gossamer.extract.blocks import Block, join_blocks
from gossamer.model.content import ContentChunk

_FENCE = re.compile(r"\s*(`{3,})[^`]*$")
"""First or last line of a code block, possibly in a list item. Group 1 is the fence itself."""
_RULE = re.compile(r"\s*\|(?: --- \|)+$")
"""Line below the header of a table."""
_REPEATED_PART = 4
"""A fence or table header is repeated in each piece only if it is shorter than one part in this many of the limit.
Above 2: longer ones leave little room for the text."""
_BETWEEN_BLOCKS = len("\n\n")
"""Characters between two blocks, as `join_blocks` writes them."""


@dataclass(slots=True)
class _Section:
    """A heading, the blocks up to the next heading, and the sections below it."""

    level: int
    """Level of the heading, from 1; 0: the root, which has none."""
    headings: tuple[str, ...]
    """The headings above, the outermost first, and its own."""
    blocks: list[Block] = field(default_factory=list)
    """Its heading, and what follows up to the next one."""
    sections: list["_Section"] = field(default_factory=list)
    """Its subsections."""

    def all_blocks(self) -> list[Block]:
        """Return its blocks and those of its subsections."""
        found = list(self.blocks)
        for section in self.sections:
            found += section.all_blocks()
        return found


def split_blocks(blocks: Sequence[Block], limit: int) -> list[ContentChunk]:
    """Return the chunks of a page, each at most `limit` characters long; `limit` is at least 200. No blocks, no
    chunks."""
    return list(_chunks(_outline(blocks), limit))


def _outline(blocks: Sequence[Block]) -> _Section:
    """Return the page as a tree of sections. The root has what comes before the first heading."""
    root = _Section(0, ())
    path = [root]
    for block in blocks:
        if block.level:
            while path[-1].level >= block.level:
                path.pop()
            section = _Section(block.level, (*path[-1].headings, block.title))
            path[-1].sections.append(section)
            path.append(section)
        path[-1].blocks.append(block)
    return root


def _chunks(section: _Section, limit: int) -> Iterator[ContentChunk]:
    """Yield the chunks of a section with all its subsections."""
    whole = join_blocks(section.all_blocks())
    if len(whole) <= limit:
        if whole:
            yield ContentChunk(section.headings or _only_heading(section), whole)
        return
    own = section.blocks
    if len(own) == 1 and own[0].level and section.sections and len(own[0].text) <= limit:
        own = []  # only a heading, which the chunks below it name
    for text in _pieces(own, limit):
        yield ContentChunk(section.headings, text)
    for below in section.sections:
        yield from _chunks(below, limit)


def _only_heading(section: _Section) -> tuple[str, ...]:
    """Return the headings of a page that is one chunk: its first heading, if nothing is before it."""
    return section.sections[0].headings if section.sections and not section.blocks else ()


def _pieces(blocks: Sequence[Block], limit: int) -> Iterator[str]:
    """Yield texts of at most `limit` characters that hold these blocks in order, as many in each as fit."""
    current: list[Block] = []
    length = 0
    for block in blocks:
        if current and length + _BETWEEN_BLOCKS + len(block.text) > limit:
            if len(block.text) > limit and all(before.level for before in current):
                # A heading stays with the beginning of its text.
                block = Block(join_blocks([*current, block]))
            else:
                yield join_blocks(current)
            current, length = [], 0
        if len(block.text) > limit:
            *full, rest = _cut(block.text, limit)
            yield from full
            block = Block(rest)
        length += (_BETWEEN_BLOCKS if current else 0) + len(block.text)
        current.append(block)
    if current:
        yield join_blocks(current)


def _cut(text: str, limit: int) -> list[str]:
    """Cut a text between its lines; a line that is too long, between words. At least one piece is returned."""
    cutter = _Cutter(limit)
    for line in text.split("\n"):
        cutter.add(line)
    return cutter.pieces()


class _Cutter:
    """Collects lines into pieces of limited length, each of which is Markdown of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        """Complete pieces."""
        self._lines: list[str] = []
        """Lines of the piece that is being collected."""
        self._length = 0
        """Length of these lines with the line breaks between them."""
        self._opening: list[str] = []
        """Repeated at the beginning of each piece: the fence of code, or the header of a table."""
        self._closing = ""
        """Added to the end of each piece: the fence of code. Empty: the lines are not code."""
        self._previous = ""
        """The line before, which is the header if a table begins."""

    def add(self, line: str) -> None:
        """Add a line. One that fits into no piece is cut between words."""
        closing = len("\n") + len(self._closing) if self._closing else 0  # length of what is added to the piece
        room = self._limit - sum(len(opening) + 1 for opening in self._opening) - closing  # in a fresh piece
        while len(line) > room:
            left = self._limit - self._length - bool(self._lines) - closing  # in this piece
            if left < room // 2:
                self._end_piece()
                continue
            end = line.rfind(" ", left // 2, left) + 1 or left  # behind the last blank that is not too far in front
            self._append(line[:end] if self._closing else line[:end].rstrip())
            self._end_piece()
            line = line[end:]
        if self._length + 1 + len(line) + closing > self._limit and self._lines != self._opening:
            self._end_piece()
        self._append(line)
        self._note(line)

    def pieces(self) -> list[str]:
        """Return all pieces."""
        self._pieces.append("\n".join(self._lines))
        return [piece.strip("\n") for piece in self._pieces if piece.strip()] or [""]

    def _append(self, line: str) -> None:
        """Add a line that fits to the piece."""
        self._length += len(line) + (1 if self._lines else 0)
        self._lines.append(line)

    def _end_piece(self) -> None:
        """Complete the piece, and begin the next one."""
        self._pieces.append("\n".join([*self._lines, self._closing] if self._closing else self._lines))
        self._lines = list(self._opening)
        self._length = sum(map(len, self._lines)) + max(0, len(self._lines) - 1)

    def _note(self, line: str) -> None:
        """Remember whether the line begins or ends code or a table."""
        fence = _FENCE.fullmatch(line)
        if fence is not None and self._closing and line.strip() == self._closing.strip():
            self._opening, self._closing = [], ""
        elif fence is not None and not self._closing and _REPEATED_PART * len(line) < self._limit:
            self._opening, self._closing = [line], line[: fence.start(1)] + fence[1]
        elif not self._closing:
            header_length = len(self._previous) + len(line)
            if _RULE.fullmatch(line) and _REPEATED_PART * header_length < self._limit:
                self._opening = [self._previous, line]
            elif self._opening and not line.lstrip().startswith("|"):
                self._opening = []
        self._previous = line
