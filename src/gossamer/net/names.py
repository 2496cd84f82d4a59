"""Spells domain and host names as canonical URLs do: by the URL standard (UTS 46, not IDNA 2003), in ASCII.

Fixed: the spelling, because the frontier keeps domains and policies under it.
"""

import ada_url

from gossamer.errors import BadInput

_MAX_CHARACTERS = 253
"""Longest name in DNS (RFC 1035): fixed."""


def domain_name(text: str) -> str:
    """Return a domain or host name as canonical URLs spell it. Raises BadInput for a text that is neither.

    Every name that a person or a program writes (scopes, policies, blacklists, overrides of DNS) must pass here,
    because it is compared with the hosts of URLs. A `*.` before the name and dots around it are left out.
    """
    name = text.strip().removeprefix("*.").strip(".")
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"  # as URLs have IPv6 addresses
    if name and not any(character in name for character in "/?#@\\ "):
        try:
            spelled: str = ada_url.URL(f"http://{name}/").hostname
        except ValueError:
            spelled = ""
        if 0 < len(spelled) <= _MAX_CHARACTERS:
            return spelled
    raise BadInput(f"{text!r} is not a domain or host name; write it as example.com, without scheme, port or path")
