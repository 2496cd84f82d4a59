"""Writes the tree that trafilatura returns as blocks of Markdown or plain text: headings, lists, tables, code.

Trafilatura's own Markdown leaves out blank lines of code and mixes code in lists with prose, so this module writes its
own. The elements are those of trafilatura 2: `head`, `p`, `list` with `item`, `quote`, `code`, `table` with `row` and
`cell`, `hi`, `ref`, `del`, `lb`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from lxml.etree import _Element

_SPACES = re.compile(r"[ \t\n\r\f\v\u200b]+")
_SPECIAL = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])"  # a backslash that would escape something
    r"|[*`]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore inside a word is no markup
    r"|\](?=[(\[:])"  # would end the text of a link
    r"|<(?=[A-Za-z/!?])"
    r"|&(?=#|[A-Za-z][A-Za-z0-9]*;)"
    r"|~(?=~)|(?<=~)~"
)
"""Characters that Markdown (CommonMark with GitHub's tables and strikethrough) may read as markup."""
_LINE_START = re.compile(
    r"(?m)^(?P<indent>[ ]*)"
    r"(?:(?P<mark>#{1,6}(?=[ ]|$)|>|[-+](?=[ ]|$)|=+[ ]*$|[-|:](?=[-|: ]*$))|(?P<number>\d{1,9})(?P<dot>[.)])(?=[ ]|$))"
)
"""Beginning of a line that Markdown would read as a heading, quote, list item, rule, or as the line below the header of
a table."""
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
"""Characters that a backslash escapes. Fixed by CommonMark."""
_MARKS = {"#b": "**", "#i": "*"}
"""Markdown of the renditions of `hi`. Others, such as underlined and superscript, have none."""
_MARKED = ("ref", "hi", "del")
"""Elements inside of a line that have marks in Markdown."""
_BLOCKS = (
    "head", "p", "list", "quote", "table", "item", "row", "cell", "div", "body",
    # Of HTML, which trafilatura leaves as they are.
    "address", "article", "aside", "center", "details", "dialog", "dir", "fieldset", "figcaption", "figure", "footer",
    "form", "header", "hgroup", "hr", "legend", "main", "menu", "nav", "search", "section", "summary",
)  # fmt: skip
"""Elements that begin on a new line, and so does every element around one of them. `code` is one of them only where it
has several lines."""


class CodeBlock(NamedTuple):
    """Preformatted text of a page, exactly as the page has it."""

    text: str
    language: str
    """Name of the programming language that the page gives; empty: none."""


class Block(NamedTuple):
    """A part of the content that stands on lines of its own."""

    text: str
    """Markdown, or plain text. Without line breaks at its ends, never empty."""
    level: int = 0
    """Level of a heading, 1 to 6; 0: no heading."""
    title: str = ""
    """Plain text of a heading."""
    is_tight: bool = False
    """True: no empty line before it, because it continues a list."""


def join_blocks(blocks: Sequence[Block]) -> str:
    """Return the text of all blocks."""
    parts: list[str] = []
    for block in blocks:
        if parts:
            parts.append("\n" if block.is_tight else "\n\n")
        parts.append(block.text)
    return "".join(parts)


class Renderer:
    """Writes one page's tree as blocks, in Markdown or as plain text."""

    def __init__(
        self,
        codes: Sequence[CodeBlock],
        placeholder: re.Pattern[str],
        resolve: Callable[[str], str | None],
        *,
        markdown: bool,
    ) -> None:
        """`codes`: the code blocks of the page, for which its tree has text that `placeholder` finds; group 1 is the
        position in `codes`. `resolve` returns the absolute URL of a link; None: the link is left out, not its text."""
        self._codes = codes
        self._placeholder = placeholder
        self._resolve = resolve
        self._markdown = markdown

        self._around: list[_Element] = []
        """Links and formatting around the blocks that are being written, the innermost last."""
        self._linked: set[_Element] = set()
        """Those of these links whose mark has been written."""

    def render(self, body: _Element) -> list[Block]:
        """Return the blocks of the tree."""
        return self._flow(body)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _flow(self, element: _Element) -> list[Block]:
        """Return the blocks of mixed content: what is inline between two blocks is a paragraph."""
        blocks: list[Block] = []
        inline: list[str] = []

        def end_paragraph() -> None:
            if text := self._paragraph(self._with_marks_around("".join(inline))):
                blocks.append(Block(text))
            inline.clear()

        for piece in self._pieces(element):
            if isinstance(piece, CodeBlock):
                end_paragraph()
                blocks += self._code(piece)
            elif isinstance(piece, str):
                self._append(inline, self._escaped(piece))
            elif _is_block(piece):
                end_paragraph()
                blocks += self._block(piece)
            else:
                self._append(inline, self._inline_element(piece))
        end_paragraph()
        return blocks

    def _pieces(self, element: _Element) -> Iterator[str | CodeBlock | _Element]:
        """Yield texts, code blocks and child elements in their order."""
        yield from self._texts(element.text)
        for child in element:
            if isinstance(child.tag, str):
                yield child
            yield from self._texts(child.tail)

    def _texts(self, text: str | None) -> Iterator[str | CodeBlock]:
        """Yield the parts of a text: strings, and the code blocks for which placeholders stand."""
        if not text:
            return
        start = 0
        for match in self._placeholder.finditer(text):
            if match.start() > start:
                yield text[start : match.start()]
            yield self._codes[int(match[1])]
            start = match.end()
        if start < len(text):
            yield text[start:]

    def _block(self, element: _Element) -> list[Block]:
        """Return the blocks of an element that begins on a new line."""
        tag = element.tag
        if tag == "head":
            return self._heading(element)
        if tag == "list":
            return self._definitions(element) if element.get("rend") == "dl" else self._list(element)
        if tag == "quote":
            text = join_blocks(self._flow(element))
            return [Block(_prefixed(text, "> ") if self._markdown else text)] if text else []
        if tag == "table":
            return self._table(element)
        if tag == "code":
            return self._code(CodeBlock(self._plain_text(element), ""))
        with self._inside(element):
            return self._flow(element)

    @contextmanager
    def _inside(self, element: _Element) -> Iterator[None]:
        """Write the blocks of an element, which may be a link or formatting."""
        if element.tag not in _MARKED:
            yield
            return
        self._around.append(element)
        yield
        self._around.pop()
        self._linked.discard(element)

    def _with_marks_around(self, text: str) -> str:
        """Return inline content with the marks of the links and formatting around its block. Of the blocks in a link,
        the first one with a text has it."""
        for element in reversed(self._around):
            if element in self._linked:
                continue
            marked = self._marked(element, text)
            if element.tag == "ref" and marked != text:
                self._linked.add(element)
            text = marked
        return text

    def _heading(self, element: _Element) -> list[Block]:
        """Return a heading. trafilatura has its level in `rend`: `h1` to `h6`."""
        text = _SPACES.sub(" ", self._with_marks_around(self._inline(element))).strip()
        if not text:
            return self._flow(element)  # only code
        rend = element.get("rend") or ""
        level = int(rend[1:]) if re.fullmatch(r"h[1-6]", rend) else 2
        title = _SPACES.sub(" ", self._placeholder.sub(" ", _plain(element))).strip()
        if not self._markdown:
            return [Block(text, level, title)]
        if text.endswith("#"):  # would be a closing sequence
            text = f"{text[:-1]}\\#"
        return [Block(f"{'#' * level} {text}", level, title)]

    def _code(self, code: CodeBlock) -> list[Block]:
        """Return a code block, in Markdown between fences: lines of backticks, more than any in the code."""
        text = code.text.strip("\n").rstrip()
        if not text:
            return []
        if not self._markdown:
            return [Block(text)]
        fence = _longer_than(text, "`", 3)
        return [Block(f"{fence}{code.language}\n{text}\n{fence}")]

    def _list(self, element: _Element) -> list[Block]:
        """Return a list, each item as a block of its own; items of a single paragraph follow without an empty line."""
        blocks: list[Block] = []
        number = 0
        for item in element:
            if item.tag != "item":
                found = self._block(item) if isinstance(item.tag, str) else []
            else:
                inner = self._flow(item)
                if any(block.level for block in inner):  # no list but a frame: its items are sections
                    blocks += inner
                    continue
                number += 1
                marker = f"{number}. " if element.get("rend") == "ol" else "- "
                text = join_blocks([_tightened(block, index) for index, block in enumerate(inner)])
                found = [Block(marker + _indented(text, len(marker)))] if text else []
            for block in found:
                is_tight = bool(blocks) and "\n\n" not in block.text and "\n\n" not in blocks[-1].text
                blocks.append(block._replace(is_tight=is_tight))
        return blocks

    def _definitions(self, element: _Element) -> list[Block]:
        """Return a list of terms and definitions: each term is a bold paragraph, its definition follows."""
        blocks: list[Block] = []
        for item in element:
            found = self._flow(item)
            is_term = (item.get("rend") or "").startswith("dt")
            if is_term and self._markdown and len(found) == 1 and not re.search(r"[*`\n\[]", found[0].text):
                found = [Block(f"**{found[0].text}**")]
            blocks += found
        return blocks

    # --- tables -------------------------------------------------------------------------------------------------------

    def _table(self, table: _Element) -> list[Block]:
        """Return a table as lines. In Markdown it needs a row of headings, which is empty if the table has none."""
        rows = [[cell for cell in row if cell.tag == "cell"] for row in table.iter("row")]
        rows = [row for row in rows if row]
        width = max(map(len, rows), default=0)
        if width < 2:  # no table but a frame
            return [block for row in rows for cell in row for block in self._flow(cell)] or self._flow(table)
        lines = [[self._cell(cell) for cell in row] + [""] * (width - len(row)) for row in rows]
        if not self._markdown:
            plain_lines = (" | ".join(line).strip() for line in lines if any(line))
            return [Block(text)] if (text := "\n".join(plain_lines)) else []
        # Inside of code, too, a bar would end the cell.
        lines = [[text.replace("|", "\\|") for text in line] for line in lines]
        has_head = all(cell.get("role") == "head" for cell in rows[0])
        head = lines.pop(0) if has_head else [""] * width
        lines = [head, ["---"] * width, *(line for line in lines if any(line))]
        return [Block("\n".join(f"| {' | '.join(line)} |" for line in lines))]

    def _cell(self, cell: _Element) -> str:
        """Return a cell's content on one line: its blocks separated by `<br>`, in plain text by blanks. `cell` may also
        be a block inside a cell."""
        parts: list[str] = []
        inline: list[str] = []

        def end_part() -> None:
            if text := _SPACES.sub(" ", self._with_marks_around("".join(inline))).strip():
                parts.append(text)
            inline.clear()

        for piece in self._pieces(cell):
            if isinstance(piece, CodeBlock):
                end_part()
                parts += [self._code_span(line.strip()) for line in piece.text.splitlines() if line.strip()]
            elif isinstance(piece, str):
                self._append(inline, self._escaped(piece))
            elif _is_block(piece):
                end_part()
                with self._inside(piece):
                    text = self._cell(piece)
                if text:
                    parts.append(text if piece.tag != "item" else f"- {text}")
            else:
                self._append(inline, self._inline_element(piece))
        end_part()
        if not self._markdown:
            return " ".join(parts)
        return "<br>".join(parts)

    # --- inside a line ------------------------------------------------------------------------------------------------

    def _inline(self, element: _Element) -> str:
        """Return the content of an element on one line. Code blocks in it become code spans."""
        inline: list[str] = []
        for piece in self._pieces(element):
            if isinstance(piece, CodeBlock):
                self._append(inline, self._code_span(_SPACES.sub(" ", piece.text).strip()))
            elif isinstance(piece, str):
                self._append(inline, self._escaped(piece))
            else:
                self._append(inline, self._inline_element(piece))
        return "".join(inline)

    def _inline_element(self, element: _Element) -> str:
        """Return an element inside of a line, with its markup."""
        tag = element.tag
        if tag == "lb":
            return "\n"
        if tag == "graphic":
            return ""
        if tag == "code" or (tag == "hi" and element.get("rend") == "#t"):
            return self._code_span(_SPACES.sub(" ", self._plain_text(element)))
        text = self._inline(element)
        if tag in _BLOCKS:
            return f" {text} "
        return self._marked(element, text)

    def _marked(self, element: _Element, text: str) -> str:
        """Return the text of a link or of formatting with its marks."""
        if not self._markdown:
            return text
        if element.tag == "hi":
            return _wrapped(text, _MARKS.get(element.get("rend") or "", ""))
        if element.tag == "del":
            return _wrapped(text, "~~")
        if element.tag == "ref":
            return self._link(text, element.get("target") or "")
        return text

    def _plain_text(self, element: _Element) -> str:
        """Return the text of an element, with its line breaks and the code blocks in it."""
        return self._placeholder.sub(lambda match: f"\n{self._codes[int(match[1])].text}\n", _plain(element))

    def _code_span(self, text: str) -> str:
        """Return code inside of a line: between backticks, more than any in it."""
        stripped = text.strip()
        if not self._markdown or not stripped:
            return text
        fence = _longer_than(stripped, "`", 1)
        pad = " " if stripped[0] == "`" or stripped[-1] == "`" else ""
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        return f"{before}{fence}{pad}{stripped}{pad}{fence}{after}"

    def _link(self, text: str, target: str) -> str:
        """Return a link; only its text if it has none or leads nowhere. White space around the text stays outside."""
        url = self._resolve(target) if target and text.strip() else None
        if url is None:
            return text
        for character in " ()<>\n\\":
            url = url.replace(character, f"%{ord(character):02X}")
        label = text.strip().replace("\n", " ")
        if label.count("[") != label.count("]"):  # would end the text of the link too early or too late
            label = re.sub(r"(?<!\\)[\[\]]", r"\\\g<0>", label)
        return text[: len(text) - len(text.lstrip())] + f"[{label}]({url})" + text[len(text.rstrip()) :]

    def _escaped(self, text: str) -> str:
        """Return the text of a page with single spaces, and without anything that Markdown would read as markup."""
        text = _SPACES.sub(" ", text)
        return _SPECIAL.sub(r"\\\g<0>", text) if self._markdown else text

    def _append(self, inline: list[str], text: str) -> None:
        """Append inline content. In Markdown, an exclamation mark before a link would make an image of it, and a
        backslash would escape the mark behind it."""
        if self._markdown and inline and text[:1] in _PUNCTUATION:
            before = inline[-1]
            if text.startswith("[") and before.endswith("!"):
                inline[-1] = f"{before[:-1]}\\!"
            elif (len(before) - len(before.rstrip("\\"))) % 2:
                inline[-1] = f"{before}\\"
        if text:
            inline.append(text)

    def _paragraph(self, text: str) -> str:
        """Return inline content as a paragraph. Its line breaks stay."""
        lines = [_SPACES.sub(" ", line).strip() for line in text.split("\n")]
        lines = [line for line in lines if line]
        if not self._markdown:
            return "\n".join(lines)
        return "  \n".join(_LINE_START.sub(_escape_line_start, line) for line in lines)


def _escape_line_start(match: re.Match[str]) -> str:
    """Return the beginning of a line, a match of _LINE_START, with a backslash before what Markdown would read."""
    if match["mark"] is not None:
        return f"{match['indent']}\\{match['mark']}"
    # In a numbered list the mark behind the number is escaped.
    return f"{match['indent']}{match['number']}\\{match['dot']}"


def _is_block(element: _Element) -> bool:
    """Return whether the element begins on a new line."""
    tag = element.tag
    if tag == "code":
        return "\n" in _plain(element).strip()
    return next(element.iter(*_BLOCKS), None) is not None


def _plain(element: _Element) -> str:
    """Return the text of an element, with its line breaks."""
    return "".join("\n" if part is None else part for part in _plain_parts(element))


def _plain_parts(element: _Element) -> Iterator[str | None]:
    """Yield the texts of an element; None stands for a line break."""
    for node in element.iter():
        if node.tag == "lb":
            yield None
        elif isinstance(node.tag, str) and node.text:
            yield node.text
        if node is not element and node.tail:
            yield node.tail


def _wrapped(text: str, mark: str) -> str:
    """Put marks around a text, but not around the white space at its ends."""
    stripped = text.strip()
    if not mark or not stripped or "\n" in stripped or stripped.startswith(mark[0]) or stripped.endswith(mark[0]):
        return text
    return text[: len(text) - len(text.lstrip())] + mark + stripped + mark + text[len(text.rstrip()) :]


def _longer_than(text: str, character: str, least: int) -> str:
    """Return a row of this character that is longer than any in the text, and at least `least` long."""
    longest = max((len(run) for run in re.findall(f"{re.escape(character)}+", text)), default=0)
    return character * max(least, longest + 1)


def _indented(text: str, width: int) -> str:
    """Indent all lines but the first."""
    return re.sub(r"\n(?=[^\n])", "\n" + " " * width, text)


def _prefixed(text: str, prefix: str) -> str:
    """Put a prefix before each line."""
    return "\n".join((prefix + line).rstrip() for line in text.split("\n"))


def _tightened(block: Block, position: int) -> Block:
    """Put a nested list directly under the text of its item."""
    is_list = re.match(r"(?:- |\d+\. )", block.text) is not None and "\n\n" not in block.text
    return block._replace(is_tight=True) if position and is_list else block
