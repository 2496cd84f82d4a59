"""Decides which names and addresses mean this machine only."""

from ipaddress import IPv6Address, ip_address


def is_loopback(name: str) -> bool:
    """Return whether only this machine can be reached by an address or a name. An IPv6 address has no brackets.

    Of names, only `localhost` is certain: whether a name below it (`a.localhost`) leads here, the name servers decide.
    """
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    # Without this, the answer for an IPv4-mapped address depends on the version of Python.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
