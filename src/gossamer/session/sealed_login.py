"""Encrypts the logins of a service for the frontier's server, and decrypts them, with the operator's keys.

Fixed: the form of what is encrypted, which other releases read.
"""

from typing import TYPE_CHECKING

import msgspec

from gossamer.session.session_file import SiteLogin

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


def seal_login(keys: "MultiFernet", name: str, version: int, login: SiteLogin) -> bytes:
    """Return what is stored of a login. It is bound to its name and version: as those of another one it is not read."""
    bare = msgspec.structs.replace(login, spider=None)
    return keys.encrypt(msgspec.msgpack.encode((name, version, bare)))


def open_login(keys: "MultiFernet", name: str, version: int, sealed: bytes) -> SiteLogin | None:
    """Return a stored login. None: no key decrypts it, or it is another one's."""
    from cryptography.fernet import InvalidToken  # imported late: only those with keys have it

    try:
        found = msgspec.msgpack.decode(keys.decrypt(sealed), type=tuple[str, int, SiteLogin])
    except (InvalidToken, msgspec.DecodeError):
        return None
    return found[2] if found[:2] == (name, version) else None
