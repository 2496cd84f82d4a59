"""The main content of a page, as text for people and for language models: what a crawl asks for, and what it gets.

Fixed: the fields of `PageContent`, which records show, and those of `ContentOptions`, which the frontier (the store of
waiting requests) keeps within the terms of a submission: a field may be added with a default, none may be renamed. The
words of `ContentError` are in records, too.
"""

from enum import StrEnum
from typing import Any

import msgspec

CHUNK_RANGE = (200, 1_000_000)
"""Smallest and largest number of characters of a chunk that a user may ask for. The schema `crawl.json` repeats them
(a test compares). A smaller least one would cut most code blocks and table rows in two."""


class ContentOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Form in which a crawl wants the main content of its pages. At least one of `text` and `markdown` is true."""

    text: bool = False
    """True: plain text."""
    markdown: bool = False
    """True: Markdown, with headings, links, tables and code."""
    chunk: int | None = None
    """Largest number of characters of a chunk. None: the content is not split. With it, exactly one of `text` and
    `markdown` is true."""
    in_record: bool = True
    """True: the page's record has the content."""
    in_items: bool = False
    """True: the content is also an item; with `chunk`, one item for each chunk."""


def content_options_for(*, text: bool, markdown: bool, chunk: int | None, text_in: str | None) -> ContentOptions:
    """Return the options that a user's words ask for. `text_in`: `records`, `items` or `both`; None: `records`, but
    `items` for chunks."""
    place = text_in or ("records" if chunk is None else "items")
    return ContentOptions(
        text=text, markdown=markdown, chunk=chunk, in_record=place != "items", in_items=place != "records"
    )


class ContentError(StrEnum):
    """Reason why a page has no content."""

    EMPTY = "no_text"
    """The page has no text besides navigation and the like."""
    COMPLEX = "too_complex"
    """Its elements nest so deeply that a parser would lose parts of it."""
    CPU = "cpu_limit"
    """It took more CPU time than the operator allows for a page."""
    MEMORY = "memory_limit"
    """It took more memory than the operator allows for a page."""
    CRASHED = "crashed"
    """The process that read the page died, or failed, on this page."""
    UNAVAILABLE = "unavailable"
    """The worker cannot extract text: the extra `text` is not installed there, or its processes do not start."""


class ContentChunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of the content, at most `ContentOptions.chunk` characters long."""

    headings: tuple[str, ...]
    """The headings above the part, the outermost first."""
    body: str
    """Text or Markdown."""


class PageContent(msgspec.Struct, kw_only=True):
    """Main content of a page, with what the page says about itself. A field that the page does not tell is empty."""

    title: str = ""
    author: str = ""
    """Names, separated by `; `."""
    date: str = ""
    """Date of publication, else of the last change, as YYYY-MM-DD."""
    language: str = ""
    """Language tag that the page declares, such as `en` or `pt-BR`."""
    text: str | None = None
    """Plain text. None: the crawl did not ask for it, or see `error`."""
    markdown: str | None = None
    """Markdown. None: the crawl did not ask for it, or see `error`."""
    error: str = ""
    """Reason why there is no content, one of `ContentError`. Empty: there is."""


def content_items(
    content: PageContent, chunks: list[ContentChunk] | None, page_url: str, options: ContentOptions
) -> list[dict[str, Any]]:
    """Return the content as items: one, or one for each chunk. Content with an error is one item with the error."""
    head = {"page_url": page_url}
    if content.error:
        return [head | {"error": content.error}]
    head |= {
        "title": content.title, "author": content.author, "date": content.date, "language": content.language,
    }  # fmt: skip
    if chunks is not None:
        name = "markdown" if options.markdown else "text"
        return [
            head | {"chunk": number, "chunks": len(chunks), "headings": list(chunk.headings), name: chunk.body}
            for number, chunk in enumerate(chunks, 1)
        ]
    if options.text:
        head["text"] = content.text or ""
    if options.markdown:
        head["markdown"] = content.markdown or ""
    return [head]
