"""Faults of a server's response that lose something of it, but not the page."""

from enum import StrEnum


class ResponseFault(StrEnum):
    """ResponseFault that was repaired. Metrics and summaries have these words."""

    STATUS_LINE = "status_line"
    """The status line was not that of HTTP/1.0 or 1.1. A missing status counts as 200."""
    HEADER_LINE = "header_line"
    """A line of the head was no header and was dropped, or its control characters became blanks."""
    CONTENT_LENGTH = "content_length"
    """Content-Length was no number, so the body was read until the connection ended."""
    CONTENT_ENCODING = "content_encoding"
    """The body is not encoded, although the headers say so. An error page or a redirect counts nevertheless."""
    BODY = "body"
    """The body is damaged or incomplete. What could be read of it is kept, and marked as truncated."""
