"""The border: what a server answers in anger becomes one of our errors, and nothing of it goes further up."""

import ssl

from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable

_PASSING = frozenset(
    {"LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "UNBLOCKED"}
)
"""First words of refusals that pass by themselves, or when a person made room: repeat the call."""

_STALE = frozenset({"CLUSTERDOWN", "MASTERDOWN", "READONLY"})
"""First words that say that another node may serve the slot by now."""

_ADVICE = {
    "NOAUTH": "it asks for a password: write it into the address, redis://:PASSWORD@host:port",
    "WRONGPASS": "it does not know this user and password; check them in the address",
    "NOPERM": "its access list forbids this user something the frontier needs "
    "(~<prefix>* &<prefix>* +@read +@write +@scripting +@pubsub +@connection +wait +info +config|get +cluster)",
    "DENIED": "it is in protected mode: give it a password, or bind it to an address that only your machines reach",
}

_DISK_FULL = "MISCONF"


def first_word(error: ReplyError) -> str:
    """The error's code: `MOVED`, `OOM`, `ERR` …"""
    return str(error).partition(" ")[0]


def is_stale(error: ReplyError) -> bool:
    """Whether this refusal says that the map of slots may be out of date."""
    return first_word(error) in _STALE


def translate(error: ReplyError, *, doing: str) -> FrontierError:
    """Our error for a server's refusal. `doing`: what was asked of which server, for the person who reads it."""
    word, text = first_word(error), str(error)
    if word in _ADVICE:
        return ServerUnsuitable(f"{doing}: {_ADVICE[word]} ({text})")
    if word == _DISK_FULL:
        return FrontierUnavailable(f"{doing}: the server cannot write to its disk; make room there ({text})")
    if word in _PASSING or text.startswith("ERR max number of clients"):
        return FrontierUnavailable(f"{doing}: {text}")
    return FrontierError(f"{doing}: {text}")


def translate_greeting(error: ReplyError, *, doing: str) -> FrontierError:
    """The same for AUTH and SELECT, where what does not pass by itself is a mistake in the address."""
    translated = translate(error, doing=doing)
    if type(translated) is FrontierError:
        return ServerUnsuitable(f"{doing}: check user, password and database in the address ({error})")
    return translated


def translate_os_error(error: OSError, *, doing: str) -> FrontierError:
    """Our error for a connection that did not come about, or ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        return ServerUnsuitable(f"{doing}: its certificate is not trusted ({reason}); ?ssl_ca_certs=FILE names its CA")
    if isinstance(error, ssl.SSLError):
        return ServerUnsuitable(f"{doing}: no TLS came about ({error.reason}); redis:// is the form without TLS")
    if isinstance(error, TimeoutError) and not error.strerror:
        return FrontierUnavailable(f"{doing}: no answer in time")
    return FrontierUnavailable(f"{doing}: {error.strerror or error}")
