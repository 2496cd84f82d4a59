"""How each case has to end: a page, a failure with its reason, or waiting for a robots.txt that cannot be had."""

from collections.abc import Mapping

from gossamer_fakeweb.hostile import addresses, bombs, gates, pages, robots, traps, wire

PAGE = "page"
CUT = "page, cut"
"""A page that was longer than what is taken of it."""
WAITS = "waits"
"""No record yet, as it will be asked for again: when its robots.txt can be had, or in an hour, which is the longest
that a Retry-After is believed. Until then at most one request, and the robots.txt's."""

_LOST = frozenset({"connection_lost"})
_BAD = frozenset({"bad_response"})
_HEADERS = frozenset({"headers_too_large"})
_SLOW = frozenset({"total_timeout"})
_IDLE = frozenset({"idle_timeout", "total_timeout"})
_BOMB = frozenset({"decode_bomb"})
_DECODE = frozenset({"decode"})
_PAGE = frozenset({PAGE})
_CUT = frozenset({CUT})
_LOOP = frozenset({"redirect_loop"})
_ENDLESS = frozenset({"too_many_redirects"})
_NOWHERE = frozenset({"bad_redirect"})
_BLOCKED = frozenset({"blocked_address"})
_WAITS = frozenset({WAITS})
_TLS = frozenset({"tls", "connect"})
_DEAF = frozenset({"connect_timeout"})

_ENDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("endless-headers", "endless-header", "endless-status", "endless-blank"), _HEADERS),
    **dict.fromkeys(("endless-extension", "endless-trailers", "endless-tiny-chunks", "headers-many"), _HEADERS),
    **dict.fromkeys(("endless-body", "endless-chunks"), _CUT),
    **dict.fromkeys(("endless-interim", "length-twice", "headers-nul"), _BAD),
    **dict.fromkeys(("chunk-negative", "chunk-overflow", "status-zero"), _BAD),
    "status-high": frozenset({"http_999"}),
    "length-too-long": _LOST,
    "silent-request": frozenset({"first_byte_timeout"}),
    **dict.fromkeys(("gzip-cut", "gzip-endless"), _CUT),
    **dict.fromkeys(("gzip-ten-times", "gzip-many-headers", "gzip-not", "gzip-as-brotli"), _DECODE),
    **dict.fromkeys(("zstd-window", "zstd-size"), _DECODE),
    **dict.fromkeys(("gzip-empty-members", "zstd-skippable"), _PAGE),
    # A little longer than what is taken of a body.
    "deflate-empty": _CUT | _PAGE,
    "page-long": _CUT,
    **dict.fromkeys(("redirect-self", "redirect-ring", "redirect-cookies"), _LOOP),
    **dict.fromkeys(("redirect-hosts", "redirect-onward", "redirect-steps"), _ENDLESS),
    **dict.fromkeys(("redirect-nowhere", "redirect-empty", "redirect-refresh"), _PAGE),
    "redirect-refused": frozenset({"connect"}),
    **dict.fromkeys(("retry-after-ever", "retry-after-overflow"), _WAITS),
    "retry-after-date": frozenset({"http_503"}),
    **dict.fromkeys(("robots-silent", "robots-half", "robots-slow", "robots-reset", "robots-cut"), _WAITS),
    "robots-delay": _WAITS | _PAGE,
    **dict.fromkeys(("robots-broken", "robots-away", "robots-busy"), _WAITS),
    **dict.fromkeys(("gate-reset", "gate-closed", "gate-silent", "gate-flood"), _WAITS | {"connect"}),
    # It answers early enough, or too early: before the request, to which the answer is then missing.
    "gate-early": _WAITS | _LOST | {"connect", PAGE},
    "gate-deaf": _DEAF,
    **dict.fromkeys(("gate-tls-silent", "gate-tls-half", "gate-tls-slow"), _DEAF),
    # Those whose path is lost lead to one URL.
    "private-redirect": _BLOCKED | _NOWHERE | {"dns", "duplicate"},
    "private-hops": _BLOCKED,
    # A localhost that no name server knows is waited for.
    "robots-to": frozenset({"robots", PAGE, WAITS}),
}


def ends_of(case: str) -> frozenset[str]:
    """The outcomes that are right for this case."""
    return _ENDS.get(case) or _by_kind(case)


def _by_kind(case: str) -> frozenset[str]:
    for prefix, ends in _PREFIXES.items():
        if case.startswith(prefix):
            return ends
    return _BOMB if case in bombs.CASES else _PAGE


_PREFIXES: Mapping[str, frozenset[str]] = {
    "silent-": _IDLE,
    "slow-": _SLOW,
    "reset-": _LOST,
    "closed-": _LOST,
    "protocol-": _BAD,
    "redirect-": _NOWHERE,
    "gate-tls-": _TLS,
}

KNOWN = {**wire.CASES, **bombs.CASES, **pages.CASES, **traps.CASES, **robots.CASES, **addresses.CASES, **gates.KINDS}
"""Every case there is."""
assert _ENDS.keys() <= KNOWN.keys(), sorted(_ENDS.keys() - KNOWN.keys())
