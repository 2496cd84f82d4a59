"""Encrypts cookies for the frontier's server, and decrypts them, with the operator's keys."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from gossamer.errors import BadInput
from gossamer.extras import install_advice
from gossamer.session.cookie import Cookie
from gossamer.session.jar import Identity
from gossamer.storage.secret_keys import open_keys, read_keys

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class CookieVault:
    """Encrypts and decrypts the cookies of one jar. A token holds the name of its jar: one that was copied from another
    jar is not read."""

    def __init__(self, keys: "MultiFernet", jar_name: str) -> None:
        self._keys = keys
        self._name = jar_name

    def field(self, identity: Identity) -> bytes:
        """Return the field under which a cookie is stored: a digest, because names of cookies tell about a person."""
        return hashlib.blake2b(msgspec.msgpack.encode((self._name, identity)), digest_size=12).digest()

    def encrypt(self, cookie: Cookie) -> bytes:
        """Return what is stored of a cookie."""
        return self._keys.encrypt(msgspec.msgpack.encode((self._name, cookie)))

    def decrypt(self, token: bytes) -> Cookie | None:
        """Return a stored cookie. None: no key decrypts it, or it was stored in another jar."""
        from cryptography.fernet import InvalidToken  # imported late: only vaults with keys exist

        try:
            name, cookie = msgspec.msgpack.decode(self._keys.decrypt(token), type=tuple[str, Cookie])
        except (InvalidToken, msgspec.DecodeError):
            return None
        return cookie if name == self._name else None


def open_vault_keys(environment: Mapping[str, str]) -> "MultiFernet | None":
    """Return the operator's keys of all vaults. None: there are none, so nothing is stored. Raises BadInput."""
    try:
        return open_keys(read_keys(environment))
    except ImportError:
        raise BadInput(f"cookies cannot be encrypted here. Install the extra: {install_advice('session')}") from None
